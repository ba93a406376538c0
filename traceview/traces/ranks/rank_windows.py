"""The ranks of a recording, their GPUs, and the time of each by activity and step."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Integers, Texts
from traceview.base.vocabulary.causes import CAUSE_NAMES, UNKNOWN
from traceview.traces.facts import collectives, kernel_classes, operations
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.steps.steps import longest_loop, pace, steps, warm_up_of
from traceview.traces.ranks.figures import Numbered, RankName, RankSteps, no_steps
from traceview.traces.trace import Trace, model, rank_identity

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
    ops, moved = operations.operations(trace), collectives.transfers(trace)
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
    return [RankOwner(int(process[row]), int(device[row])) for row in np.flatnonzero(chosen)]


def operations_of(trace: Trace, owner: RankOwner) -> Integers:
    """Rows of the operations of a rank, in order of start."""
    ops = operations.operations(trace)
    return np.flatnonzero((ops.device == owner.device) & (ops.process == owner.process))


def rank_names(trace: Trace, owners: list[RankOwner]) -> list[RankName]:
    """The name of each rank, numbered by recording, file name, communicators or order."""
    numbers, numbered = _rank_numbers(trace, owners)
    return [
        _name(trace, owner, number, numbered, alone=len(owners) == 1)
        for owner, number in zip(owners, numbers, strict=True)
    ]


def _rank_numbers(trace: Trace, owners: list[RankOwner]) -> tuple[list[int], Numbered]:
    if len(owners) == 1 and trace.rank is not None:
        # Without a noted rank, it is that of the largest communicator, which may not be the world.
        noted = rank_identity.RankIdentity.of_run(trace.run) is not None
        return [trace.rank.rank], "recording" if noted else "communicator"
    in_name = _IN_FILE_NAME.search(Path(trace.path).name)
    if len(owners) == 1 and in_name:
        return [int(in_name[1])], "file name"
    numbers: list[int] = []
    communicators = trace.recorded("communicators")
    for owner in owners:
        joined = communicators.take(communicators["process"] == owner.process)
        size = joined["ranks"]
        # The process's rank in its largest communicator, if that is unique.
        ranks = groups.different(joined["rank"][size == size.max(initial=0)])
        numbers += ranks.tolist() if len(ranks) == 1 else []
    if len(numbers) == len(owners) and len(set(numbers)) == len(numbers):
        return numbers, "communicator"
    return list(range(len(owners))), "order"


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


def rank_traces(trace: Trace) -> list[Trace]:
    """The trace of each rank's process, in the order of `rank_owners`.

    If the process uses several GPUs, the trace has the work on all of them. Events of unknown
    processes are in each.
    """
    owners = rank_owners(trace)
    if len({owner.process for owner in owners}) < 2:
        return [trace] * len(owners)
    by_process = {owner.process: _process_trace(trace, owner.process) for owner in owners}
    return [by_process[owner.process] for owner in owners]


def _process_trace(trace: Trace, process: int) -> Trace:
    tables = dict(trace.tables)
    for name, table in trace.tables.items():
        # Threads are kept whole, because other tables refer to their rows.
        if name != "threads" and "process" in {column.name for column in table.columns}:
            tables[name] = table.take((table["process"] == process) | table.is_null("process"))
    return replace(trace, tables=tables, _facts=model.Facts())


_NUMBER = re.compile(r"(\d{1,15})\D*$")


@record
class RankTime:
    """Unions of a rank's time: kernels without communication, communication, all work.

    `idle` has the idle gaps of its GPU, by cause.
    """

    compute: Intervals
    communication: Intervals
    work: Intervals
    busy_without_communication: Intervals
    idle: tuple[Intervals, ...]

    def idle_ns(self, start: Integers, end: Integers) -> Integers:
        """Idle time of each [start, end) by cause; shape (intervals, len(CAUSES))."""
        idle = np.zeros((len(start), len(self.idle)), np.int64, order="F")
        for cause, each in enumerate(self.idle):
            idle[:, cause] = intervals.overlap(each, start, end)
        return idle


def rank_time(trace: Trace, owner: RankOwner) -> RankTime:
    """The time of a rank. All gaps of its GPU count, whichever process ends them."""
    ops, rows = operations.operations(trace), operations_of(trace, owner)
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    exchanges = kernel_classes.communication_operations(trace)[rows]
    computes = ~exchanges & np.isin(ops.kind[rows], (operations.Kind.KERNEL, operations.Kind.GRAPH))
    every = every_gap(trace)
    gaps = every.device == owner.device
    causes = ((gaps & (every.cause == cause)) for cause in range(len(CAUSE_NAMES)))
    return RankTime(
        compute=intervals.union(start[computes], end[computes]),
        communication=intervals.union(start[exchanges], end[exchanges]),
        work=intervals.union(start, end),
        busy_without_communication=intervals.union(start[~exchanges], end[~exchanges]),
        idle=tuple(intervals.covered(every, of) for of in causes),
    )


def loop_of(trace: Trace, owner: RankOwner) -> Integers:
    """Rows, in the table of steps, of the loop with most of a rank's time, with warm-up."""
    ops = operations.operations(trace)
    own = (ops.device == owner.device) & (ops.process == owner.process)
    return longest_loop(trace, own, owner.process)


def rank_steps(trace: Trace, rows: Integers, time: RankTime) -> RankSteps:
    """The steps at `rows` of the table of steps, split by the rank's activity."""
    if not len(rows):
        return no_steps()
    timed, names = pace(trace), steps(trace).names.take(rows)
    begin, end = timed.begin_ns[rows], timed.end_ns[rows]
    return RankSteps(
        names=tuple(map(str, names.decode())),
        number=_numbers(names),
        begin_ns=begin,
        end_ns=end,
        warm_up=warm_up_of(trace, rows),
        **parts_of(time, begin, end),
    )


def parts_of(time: RankTime, begin: Integers, end: Integers) -> dict[str, Integers]:
    """The parts of each [begin, end), by their names in RankSteps.

    Time without work that is in no gap, as before the first work, is idle time of unknown cause.
    """
    both = zip(time.compute, time.communication, strict=True)
    kernels = intervals.union(*map(np.concatenate, both))
    compute = intervals.overlap(time.compute, begin, end)
    communication = intervals.overlap(time.communication, begin, end)
    covered = intervals.overlap(kernels, begin, end)
    work = intervals.overlap(time.work, begin, end)
    idle = time.idle_ns(begin, end)
    idle[:, UNKNOWN] += end - begin - work - idle.sum(axis=1)
    return {
        "compute_ns": compute,
        "exposed_ns": covered - compute,
        "hidden_ns": communication - (covered - compute),
        "copies_ns": work - covered,
        "idle_ns": idle,
    }


def _numbers(names: Texts) -> Integers:
    """The last number in each name; if these do not ascend, 0, 1, 2 …"""
    matches = [_NUMBER.search(str(name)) for name in names.decode()]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) < len(names) or (np.diff(numbers) <= 0).any():
        return np.arange(len(names))
    return np.array(numbers, np.int64)
