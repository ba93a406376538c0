"""Real ranks that train together over gloo, each recorded by torch.profiler into its own file."""

import json
import sys

import pytest

from tests.headless.forked_python import run_script
from tests.recorders.ranks.test_launched_ranks import LAUNCHERS, SAYS
from tests.recorders.test_torch_recording import without_nsys
from traceview import load

pytest.importorskip("torch.distributed.run", reason="torch is not installed")
pytestmark = pytest.mark.programs

TOGETHER = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}", flush=True)
"""
# It imports the compiler of torch, which takes each rank longer than all else.
TRAINING = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 8) * dist.get_rank()).square().mean().backward()
    optimizer.step()
"""
END = "dist.destroy_process_group()\n"
RECORD = ("record", "--backend", "torch", "-o", "run.sqlite")
PYTHON = (sys.executable, "-m")
TORCHRUN = (*PYTHON, "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("command", "launcher", "training"),
    [
        ((*PYTHON, "traceview", *RECORD, "--nproc", "2", "train.py"), "nproc", TRAINING),
        ((*TORCHRUN, "--no-python", *PYTHON, "traceview", *RECORD, "train.py"), "torchrun", ""),
    ],
)
def test_ranks_that_work_together_are_recorded_each(command, launcher, training, tmp_path):
    (tmp_path / "train.py").write_text(TOGETHER + training + END)
    done = run_script(command, without_nsys(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        # Two ranks may write between a text and its end of line.
        assert f"rank {rank} of 2: 3" in done.stdout
        trace = load(tmp_path / f"run.rank{rank}.sqlite")
        assert (trace.rank.rank, trace.rank.world_size) == (rank, 2)
        assert (trace.rank.local_world_size, trace.rank.launcher) == (2, launcher)
        names = {str(name) for name in trace.ranges.texts("name").values}
        assert "gloo:all_reduce" in names
        assert ("DistributedDataParallel.forward" in names) == bool(training)
    assert "traceview: read all ranks with: traceview report run.rank*.sqlite\n" in done.stderr
    assert "only rank" not in done.stderr
    assert not list(tmp_path.glob(".traceview-*"))


def test_ranks_that_torchrun_starts_as_a_module_are_recorded_each(environment, tmp_path):
    """By the script that stands for nsys, as what they run is the same."""
    (tmp_path / "train.py").write_text(SAYS)
    command = (*TORCHRUN, "-m", "traceview", "record", "-o", "run.sqlite", "train.py", "--lr", "1")
    done = run_script(command, environment, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        told = json.loads((tmp_path / f"said{rank}.json").read_text())
        assert (told["RANK"], told["WORLD_SIZE"], told["arguments"]) == (
            str(rank),
            "2",
            ["--lr", "1"],
        )
        place = load(tmp_path / f"run.rank{rank}.sqlite").rank
        assert (place.rank, place.world_size) == (rank, 2)
        assert (place.local_world_size, place.launcher) == (2, "torchrun")
    assert "traceview: read all ranks with: traceview report run.rank*.sqlite\n" in done.stderr
    assert "only rank" not in done.stderr
    assert not list(tmp_path.glob(".traceview-*"))


def test_a_block_of_a_rank_is_written_to_a_file_of_its_own(tmp_path):
    program = """
import torch, traceview
with traceview.recording("block.sqlite") as path:
    torch.ones(3) + 1
print(path)
"""
    (tmp_path / "train.py").write_text(program)
    told = {**without_nsys(), **LAUNCHERS["torchrun"]}
    done = run_script([sys.executable, "train.py"], told, folder=tmp_path)
    assert done.stdout == "block.rank03.sqlite\n", done.stderr
    assert load(tmp_path / "block.rank03.sqlite").rank.rank == 3
