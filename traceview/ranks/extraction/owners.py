"""The ranks of a recording: the GPUs that its processes work on, and their numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.collectives.transfers import transfers
from traceview.facts.operations.operations import operations
from traceview.ranks.figures import Numbered, RankName
from traceview.tables import Integers
from traceview.trace import Trace
from traceview.trace.rank_identity import RankIdentity

LEAST_OF_GPU = 0.05
"""A process with a smaller fraction of a GPU's work is not a rank on it: torch creates a context,
and makes a few copies, on GPUs of other ranks."""
_IN_FILE_NAME = re.compile(r"(?:^|[^a-z])rank[-_ .]?(\d{1,6})(?!\d)", re.IGNORECASE)


class RankOwner(NamedTuple):
    """A process and a GPU that it uses, as rows of the tables processes and devices."""

    process: int
    device: int


def rank_owners(trace: Trace) -> list[RankOwner]:
    """The ranks of a recording, in order of machine, GPU and process."""
    ops, moved = operations(trace), transfers(trace)
    if not len(ops):
        return []
    by = groups.group(ops.device, ops.process)
    time = groups.sums(by, ops.duration_ns)
    device, process = ops.device[by.first], ops.process[by.first]
    of_gpu = np.zeros(int(device.max()) + 1, np.int64)
    np.maximum.at(of_gpu, device, time)
    exchanges = groups.different(by.ids[moved.operation[moved.is_collective]])
    chosen = time >= LEAST_OF_GPU * of_gpu[device]
    chosen[exchanges] = True
    return [RankOwner(int(process[each]), int(device[each])) for each in np.flatnonzero(chosen)]


def operations_of(trace: Trace, owner: RankOwner) -> Integers:
    """Rows of the operations of a rank, in order of start."""
    ops = operations(trace)
    return np.flatnonzero((ops.device == owner.device) & (ops.process == owner.process))


def rank_names(trace: Trace, owners: list[RankOwner]) -> list[RankName]:
    """The name of each rank, numbered by recording, file name, communicators or order."""
    numbers, numbered = _numbers(trace, owners)
    return [
        _name(trace, owner, number, numbered, alone=len(owners) == 1)
        for owner, number in zip(owners, numbers, strict=True)
    ]


def _numbers(trace: Trace, owners: list[RankOwner]) -> tuple[list[int], Numbered]:
    if len(owners) == 1 and trace.rank is not None:
        # Without a noted rank, it is that of the largest communicator, which may not be the world.
        noted = RankIdentity.of_run(trace.run) is not None
        return [trace.rank.rank], "recording" if noted else "communicator"
    in_name = _IN_FILE_NAME.search(Path(trace.path).name)
    if len(owners) == 1 and in_name:
        return [int(in_name[1])], "file name"
    numbers = [_of_communicators(trace, owner) for owner in owners]
    known = [number for number in numbers if number is not None]
    if len(known) == len(owners) and len(set(known)) == len(known):
        return known, "communicator"
    return list(range(len(owners))), "order"


def _of_communicators(trace: Trace, owner: RankOwner) -> int | None:
    """The process's rank in its largest communicator; None without a unique one."""
    known = trace.recorded("communicators")
    own = known.take(known["process"] == owner.process)
    if not len(own):
        return None
    ranks = groups.different(own["rank"][own["ranks"] == own["ranks"].max()])
    return int(ranks[0]) if len(ranks) == 1 else None


def _name(
    trace: Trace, owner: RankOwner, number: int, numbered: Numbered, *, alone: bool
) -> RankName:
    identity = trace.rank if alone else None
    host_id = int(trace.devices["host_id"][owner.device])
    several = len(groups.different(trace.devices["host_id"])) > 1
    host = (trace.rank.host if trace.rank else None) or trace.run.get("host") or ""
    return RankName(
        rank=number,
        local_rank=identity.local_rank if identity else None,
        world_size=trace.rank.world_size if trace.rank else None,
        host=f"{host or 'host'} {host_id}" if several else host,
        clock=f"{trace.path}|{host_id}" if several else trace.path,
        device_id=int(trace.devices["device_id"][owner.device]),
        gpu=str(trace.devices.texts("name")[owner.device] or ""),
        numbered=numbered,
    )
