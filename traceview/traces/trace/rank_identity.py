"""The rank of a recorded process in a distributed run, and the variables of its launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Self

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Table

HOST = "host"
"""Name in TRACEVIEW_RUN under which the host name, or its pseudonym, is stored."""
STARTED_BY_RECORD = "TRACEVIEW_NPROC"
"""Variable that `traceview record --nproc` sets for its ranks."""
_PSEUDONYM = re.compile(r"host-[0-9a-f]{8}")
_LARGEST = 1 << 24
_NUMBER = re.compile(r"\d{1,8}")
# Names of rank, world size, local rank and local world size, by launcher. torchrun:
# torch/distributed/run.py. Open MPI 1.3 and newer; MPICH and Intel MPI (Hydra); MVAPICH2. The size
# of a step of Slurm is not that of its allocation, whose batch script is not a step.
_VARIABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "torchrun": (("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    "mpirun": (
        ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"),
        ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ),
    "srun": (("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), ()),
}
_ALLOCATION, _ELASTIC, _PMIX = "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_RANK"
_OF_A_STEP = {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}
RANKS = frozenset(name for ranks, *_ in _VARIABLES.values() for name in ranks) | {_PMIX}
"""Variables of launchers that hold the rank."""
NUMBERING = RANKS.union(*(names for roles in _VARIABLES.values() for names in roles))
"""Variables of launchers that number a process; their values are not secrets."""
VARIABLES = NUMBERING | _OF_A_STEP | {_ALLOCATION, _ELASTIC, STARTED_BY_RECORD}
"""All variables that show the rank of a process and its launcher."""


@record
class RankIdentity:
    """A process of a distributed run; None for what is not known.

    `host` is the host's name, or a pseudonym that is the same in all recordings of the host.
    `launcher` is torchrun, mpirun, srun or nproc (`traceview record --nproc`).
    """

    rank: int
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    host: str | None = None
    launcher: str | None = None

    @classmethod
    def of_run(cls, run: Mapping[str, str]) -> Self | None:
        """The identity stored in TRACEVIEW_RUN or in the metadata of torch.profiler."""
        rank = _number(run.get("rank"))
        if rank is None:
            return None
        sizes = {name: _number(run.get(name)) for name in _NUMBERS[1:]}
        return cls(rank, **sizes, host=run.get(HOST), launcher=run.get("launcher"))

    @classmethod
    def of_communicators(cls, communicators: Table) -> Self | None:
        """Rank and size in the largest NCCL communicator, if one process and one rank are in it."""
        if not len(communicators) or len(groups.different(communicators["process"])) > 1:
            return None
        largest = int(communicators["ranks"].max())
        ranks = groups.different(communicators["rank"][communicators["ranks"] == largest])
        return cls(int(ranks[0]), largest) if largest > 1 and len(ranks) == 1 else None

    def as_run(self) -> dict[str, str]:
        """The rows of TRACEVIEW_RUN, without unknown values."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}


_NUMBERS = ("rank", "world_size", "local_rank", "local_world_size")


def launched_rank(environment: Mapping[str, str]) -> RankIdentity | None:
    """The rank that a launcher put into the environment of a process; None if it is the only one.

    The innermost launcher counts: torchrun within a step of Slurm, mpirun within an allocation. A
    shell or batch script of Slurm, which may see the tasks of its allocation, is not a rank.
    """
    for launcher, roles in _VARIABLES.items():
        rank, size, local, local_size = (_first(environment, names) for names in roles)
        if launcher == "torchrun" and local is None:
            # Some clusters set RANK and WORLD_SIZE per node.
            continue
        if launcher == "srun" and (
            _ALLOCATION in environment and not _OF_A_STEP & environment.keys()
        ):
            continue
        if launcher == "mpirun" and _is_srun_with_pmi(environment):
            continue
        if rank is not None and size is not None:
            named = launcher if launcher != "torchrun" or _ELASTIC in environment else None
            if launcher == "torchrun" and environment.get(STARTED_BY_RECORD):
                named = "nproc"
            alone = size <= 1 or rank >= size
            return None if alone else RankIdentity(rank, size, local, local_size, launcher=named)
    # PMIx alone sets no size. Slurm sets the rank for a shell, too.
    rank = None if _ALLOCATION in environment else _number(environment.get(_PMIX))
    return None if rank is None else RankIdentity(rank, launcher="mpirun")


def pseudonym(host: str) -> str:
    """A name that distinguishes a host without revealing it: the first 32 bits of a hash."""
    if _PSEUDONYM.fullmatch(host):
        return host
    # OpenSSL takes long to load.
    from hashlib import sha256

    return f"host-{sha256(f'traceview host {host}'.encode()).hexdigest()[:8]}"


def _is_srun_with_pmi(environment: Mapping[str, str]) -> bool:
    """Whether srun provides PMI-2 itself: it does not where Hydra or Open MPI set their ranks."""
    variables = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("PMI_RANK", "PMI_SIZE")
    step, pmi = (tuple(map(environment.get, names)) for names in variables)
    others = {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"}
    return step == pmi and None not in pmi and not others & environment.keys()


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((_number(environment[name]) for name in names if name in environment), None)


def _number(text: str | None) -> int | None:
    """A rank or size as int; None if the text, which may come from a foreign trace, is invalid."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if number < _LARGEST else None
