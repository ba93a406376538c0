"""The time of a rank by activity, and the steps of its loop."""

from __future__ import annotations

import re

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gaps import every_gap
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.steps.loops import WARMED_UP_STEPS
from traceview.facts.steps.steps import pace, step_of_operations, steps
from traceview.intervals import Intervals
from traceview.ranks.extraction.owners import RankOwner, operations_of
from traceview.ranks.figures import RankSteps, no_steps
from traceview.records import record
from traceview.tables import Integers, Texts
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSE_NAMES, UNKNOWN

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
    ops, rows = operations(trace), operations_of(trace, owner)
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    exchanges = communication_operations(trace)[rows]
    computes = ~exchanges & np.isin(ops.kind[rows], (Kind.KERNEL, Kind.GRAPH))
    every = every_gap(trace)
    gaps = every.device == owner.device
    causes = ((gaps & (every.cause == cause)) for cause in range(len(CAUSE_NAMES)))
    return RankTime(
        compute=intervals.union(start[computes], end[computes]),
        communication=intervals.union(start[exchanges], end[exchanges]),
        work=intervals.union(start, end),
        busy_without_communication=intervals.union(start[~exchanges], end[~exchanges]),
        idle=tuple(intervals.union(every.start_ns[of], every.end_ns[of]) for of in causes),
    )


def loop_of(trace: Trace, owner: RankOwner) -> Integers:
    """Rows, in the table of steps, of the loop with most of a rank's time, with warm-up."""
    ops, all_steps, timed = operations(trace), steps(trace), pace(trace)
    step = step_of_operations(trace)
    own = step[(ops.device == owner.device) & (ops.process == owner.process) & (step >= 0)]
    if not len(own):
        return np.zeros(0, np.int64)
    series = groups.different(all_steps.series[groups.different(own)])
    chosen = np.isin(all_steps.series, series) & (all_steps.operations > 0) & timed.timed
    rows = np.flatnonzero(chosen & (all_steps.process == owner.process))
    if not len(rows):
        return rows
    total_ns = np.bincount(all_steps.series[rows], timed.duration_ns[rows])
    loop: Integers = rows[all_steps.series[rows] == np.argmax(total_ns)]
    return loop


def rank_steps(trace: Trace, rows: Integers, time: RankTime) -> RankSteps:
    """The steps at `rows` of the table of steps, split by the rank's activity."""
    if not len(rows):
        return no_steps()
    timed, names = pace(trace), steps(trace).names.take(rows)
    warm = timed.warm_up[rows].copy()
    # The first step loads code and fills caches, even where it takes no longer.
    warm[0] |= len(rows) >= WARMED_UP_STEPS
    begin, end = timed.begin_ns[rows], timed.end_ns[rows]
    return RankSteps(
        names=tuple(map(str, names.decode())),
        number=_numbers(names),
        begin_ns=begin,
        end_ns=end,
        warm_up=warm & ~warm.all(),
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
