"""The file that each rank writes, by the name that the user gave."""

from pathlib import Path

import pytest

from traceview.base.errors import InputError
from traceview.traces.recorders.job import RankOutput, rank_output


def of_torchrun(rank, size):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"}


def output(name, environment, words=("train.py",)) -> RankOutput:
    return rank_output(words, Path(name), environment)


@pytest.mark.parametrize(
    ("name", "rank", "size", "path", "pattern"),
    [
        ("run.sqlite", 3, 16, "run.rank03.sqlite", "run.rank*.sqlite"),
        ("run.sqlite", 3, 8, "run.rank3.sqlite", "run.rank*.sqlite"),
        ("run.sqlite", 3, 1024, "run.rank0003.sqlite", "run.rank*.sqlite"),
        ("a.b.sqlite", 1, 2, "a.b.rank1.sqlite", "a.b.rank*.sqlite"),
        ("to/my run.sqlite", 1, 2, "to/my run.rank1.sqlite", "'to/my run.rank'*.sqlite"),
        ("run", 1, 2, "run.rank1", "run.rank*"),
        ("r{rank}/t.sqlite", 3, 16, "r03/t.sqlite", "r*/t.sqlite"),
        ("t-%q{RANK}-of-%q{WORLD_SIZE}.sqlite", 3, 16, "t-3-of-16.sqlite", "t-*-of-16.sqlite"),
        ("%q{HOST}.sqlite", 3, 16, "node.rank03.sqlite", "node.rank*.sqlite"),
    ],
)
def test_each_rank_has_a_name_of_its_own(name, rank, size, path, pattern):
    environment = {**of_torchrun(rank, size), "HOST": "node"}
    written = output(name, environment)
    assert (str(written.path), written.pattern) == (path, pattern)
    assert written.rank.rank == rank


def test_the_world_size_in_a_name_does_not_tell_ranks_apart():
    written = output("of-%q{WORLD_SIZE}.sqlite", of_torchrun(1, 4))
    assert str(written.path) == "of-4.rank1.sqlite"


def test_a_name_with_the_rank_stays():
    assert str(output("run_rank03.sqlite", of_torchrun(3, 16)).path) == "run_rank03.sqlite"
    assert str(output("run.rank1.sqlite", of_torchrun(3, 16)).path) == "run.rank1.rank03.sqlite"


def test_a_rank_of_an_unknown_number_is_not_padded():
    assert str(output("run.sqlite", {"PMIX_RANK": "12"}).path) == "run.rank12.sqlite"


def test_one_process_writes_the_name_as_it_is():
    assert output("run.sqlite", {}) == RankOutput(Path("run.sqlite"))
    assert output("run.{rank}.sqlite", {}) == RankOutput(Path("run.0.sqlite"))


@pytest.mark.parametrize(
    "words",
    [
        ("torchrun", "--nproc-per-node", "8", "train.py"),
        ("/opt/bin/torchrun", "train.py"),
        ("python3", "/opt/bin/torchrun", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("accelerate", "launch", "train.py"),
    ],
)
def test_a_task_that_starts_ranks_is_none(words):
    environment = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
    written = output("run.sqlite", environment, words)
    assert (str(written.path), written.rank) == ("run.task1.sqlite", None)
    assert written.pattern == "run.task*.sqlite"


def test_a_variable_that_is_not_set_is_an_error():
    with pytest.raises(InputError, match="NODE, which is not set"):
        output("run.%q{NODE}.sqlite", of_torchrun(0, 2))
