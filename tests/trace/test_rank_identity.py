"""Which process of a distributed run a trace is of: from TRACEVIEW_RUN, the environment, NCCL."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.build import Export
from traceview.traces.trace.load import load
from traceview.traces.trace.rank_identity import RankIdentity, launched_rank, pseudonym
from traceview.traces.trace.scrub.scrubber import scrub

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
OF_TORCHRUN = RankIdentity(3, 16, 1, 2, launcher="torchrun")
STEP = {"SLURM_JOB_ID": "8", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}
# As Slurm 22.05 set them, for srun with PMI-2 and for mpirun of MPICH 5.0 within its allocation.
SRUN_PMI2 = {**STEP, "SLURM_STEP_NUM_TASKS": "4", "PMI_RANK": "2", "PMI_SIZE": "4", "PMI_FD": "12"}
PROXY = {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, OF_TORCHRUN),
        (TORCHRUN, RankIdentity(3, 16, 1, 2)),
        ({**TORCHRUN, "TRACEVIEW_NPROC": "16"}, RankIdentity(3, 16, 1, 2, launcher="nproc")),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            RankIdentity(1, 4, 1, 2, launcher="mpirun"),
        ),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"},
            RankIdentity(0, 4, 0, 4, launcher="mpirun"),
        ),
        ({**STEP, "SLURM_STEP_ID": "0"}, RankIdentity(2, 4, 0, launcher="srun")),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "3"}, RankIdentity(2, 3, 0, launcher="srun")),
        ({**STEP, "PMIX_RANK": "2", "SLURM_STEP_ID": "0"}, RankIdentity(2, 4, 0, launcher="srun")),
        (SRUN_PMI2, RankIdentity(2, 4, 0, launcher="srun")),
        ({**PROXY, **HYDRA}, RankIdentity(1, 2, 1, 2, launcher="mpirun")),
        ({"PMIX_RANK": "2"}, RankIdentity(2, launcher="mpirun")),
        ({**STEP, **TORCHRUN, "TORCHELASTIC_RUN_ID": "a"}, OF_TORCHRUN),
    ],
)
def test_a_launcher_gives_a_process_its_rank(
    environment: dict[str, str], rank: RankIdentity
) -> None:
    assert launched_rank(environment) == rank


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # One process.
        {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        # The number of a node, as some clusters set it.
        {"RANK": "1", "WORLD_SIZE": "2"},
        # A batch script within an allocation of four tasks, and a shell of one.
        {**STEP, "SLURM_PROCID": "0"},
        {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_JOB_ID": "8", "PMIX_RANK": "0"},
        # One task of torchrun in a step of four: it has a rank of its own world.
        {**STEP, "SLURM_STEP_ID": "0", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        {"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "-1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "9" * 30, "WORLD_SIZE": "9" * 30, "LOCAL_RANK": "0"},
    ],
)
def test_a_process_alone_has_no_rank(environment: dict[str, str]) -> None:
    assert launched_rank(environment) is None


def _rank(export: Export, folder: Path) -> RankIdentity | None:
    """The rank of a trace, which is written anew."""
    path = folder / "built.sqlite"
    path.unlink(missing_ok=True)
    return load(export.write(path)).rank


def test_a_recording_notes_its_rank(tmp_path: Path) -> None:
    noted = RankIdentity(3, 16, 1, 2, "host-0123abcd", "torchrun")
    assert _rank(Export().run(**noted.as_run()), tmp_path) == noted
    assert _rank(Export().run(rank="x", world_size="4"), tmp_path) is None


def _with_environment(**variables: str) -> Export:
    export = Export().launch((0, 1), (2, 3))
    for name, value in variables.items():
        export.capture("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
    return export


def test_a_recording_of_nsys_has_the_rank_of_its_environment(tmp_path: Path) -> None:
    trace = _with_environment(**TORCHRUN, TORCHELASTIC_RUN_ID="none", TOKEN="x").load(tmp_path)
    assert trace.rank == OF_TORCHRUN
    assert "x" not in trace.run.values()


def test_scrubbing_keeps_the_rank_but_no_other_variable(tmp_path: Path) -> None:
    export = _with_environment(**TORCHRUN, TOKEN="hunter2-secret", WORLD_SIZE_FILE="/x/16")
    scrub(export.write(tmp_path / "built.sqlite"), tmp_path / "clean.sqlite")
    assert load(tmp_path / "clean.sqlite").rank == RankIdentity(3, 16, 1, 2)
    content = (tmp_path / "clean.sqlite").read_bytes()
    assert b"hunter2" not in content
    assert b"WORLD_SIZE_FILE" not in content


def test_a_recording_of_several_ranks_has_none(tmp_path: Path) -> None:
    export = _with_environment(SLURM_PROCID="0", SLURM_NTASKS="2")
    assert _rank(export, tmp_path) == RankIdentity(0, 2, launcher="srun")
    assert _rank(export.launch((4, 5), (6, 7), process=9), tmp_path) is None


@pytest.mark.parametrize(("ranks", "expected"), [([3, 3], RankIdentity(3)), ([0, 1], None)])
def test_mpi_tells_the_rank_where_nsys_traced_it(
    ranks: list[int], expected: RankIdentity | None, tmp_path: Path
) -> None:
    path = Export().launch((0, 1), (2, 3)).write(tmp_path / "mpi.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER)")
        connection.executemany("INSERT INTO MPI_RANKS VALUES (1, ?)", [(rank,) for rank in ranks])
    assert load(path).rank == expected


def test_the_largest_communicator_of_nccl_tells_the_rank(tmp_path: Path) -> None:
    def created(number: int, ranks: int, rank: int) -> dict[str, int]:
        return {"NCCL communicator ID": number, "No. of ranks": ranks, "Rank": rank}

    export = Export().nccl("ncclCommInitRank", 0, 1, created(7, 8, 5))
    export.nccl("ncclCommInitRank", 2, 3, created(8, 2, 1))
    assert _rank(export, tmp_path) == RankIdentity(5, 8)
    # One process with two of the ranks.
    export.nccl("ncclCommInitRank", 4, 5, created(7, 8, 6))
    assert _rank(export, tmp_path) is None


def test_torch_profiler_notes_rank_and_host(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    distributed = {"backend": "nccl", "rank": 3, "world_size": 8}
    held = {"traceEvents": [event], "distributedInfo": distributed, "host_name": "n1"}
    path.write_text(json.dumps(held))
    assert load(path).rank == RankIdentity(3, 8, host="n1")


def test_a_pseudonym_tells_hosts_apart_and_stays() -> None:
    one = pseudonym("node-1.cluster")
    assert one == pseudonym("node-1.cluster") != pseudonym("node-2.cluster")
    assert pseudonym(one) == one
    assert "node" not in one
