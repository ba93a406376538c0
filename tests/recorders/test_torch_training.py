"""A training recorded by torch.profiler, which several tests look at."""

import os

import pytest

import traceview
from tests.recorders import fake_nsys
from tests.recorders import torch_programs as programs
from tests.recorders.test_torch_recording import own_ranges, without_nsys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training recorded beside an nvidia-smi that answers; the process and the trace."""
    folder = tmp_path_factory.mktemp("trained")
    fake_nsys.script(folder / "bin/nvidia-smi", fake_nsys.SMI)
    (folder / "train.py").write_text(programs.RANGES)
    environment = {**without_nsys(), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    words = ("record", "--backend", "torch", "--annotate", "off", "train.py", "--lr", "3")
    done = fake_nsys.traceview(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return done, traceview.load(folder / "train.sqlite")


def test_the_state_of_the_gpu_before_and_after_is_in_the_recording(trained):
    run = trained[1].run
    assert [run[f"sm_clock_mhz_{when}"] for when in ("before", "after")] == ["1980", "1980"]
    assert run["other_processes_before"] == run["other_processes_after"] == "1"
    assert run["other_processes_mib_after"] == "512"


def test_ranges_of_the_nvtx_package(trained):
    pytest.importorskip("nvtx")
    done, trace = trained
    assert "arguments ['--lr', '3'] __main__" in done.stdout
    assert own_ranges(trace) == [
        *((f"mine_{number}", "program", "push-pop") for number in range(6)),
        ('a "quoted"\n<name>', None, "push-pop"),
        ("a mark", None, "mark"),
        ("across threads", None, "start-end"),
        ("never closed", "program", "push-pop"),
    ]


def test_operators_of_all_threads_are_recorded(trained):
    pytest.importorskip("nvtx")
    trace = trained[1]
    names, threads = trace.ranges.texts("name"), trace.ranges["thread"]
    assert set(threads[names.isin(["aten::mul"])]) - set(threads[names.isin(["aten::linear"])])
