"""Where the launching thread was during idle gaps: in which call and which range, or in neither."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gap_bounds import reaching
from traceview.facts.idle.gaps import (
    ALLOCATION,
    GRAPH_LAUNCH,
    LAUNCH_LATE,
    MODULE_LOAD,
    PROFILER,
    SYNC_DRAIN,
    Gaps,
    gaps,
)
from traceview.facts.queue.launch_queue import queue_full
from traceview.facts.ranges.ranges import attribute, range_tree
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

CPU_CAUSES = (LAUNCH_LATE, SYNC_DRAIN, GRAPH_LAUNCH, MODULE_LOAD, ALLOCATION, PROFILER)
"""Causes for which the CPU answers: where it was tells why."""

OUTSIDE, ON_ITS_WAY, HELD, NOT_RUNNING = -1, -2, -3, -4
PLACES = {
    OUTSIDE: "outside CUDA",
    ON_ITS_WAY: "launched, on its way to the GPU",
    HELD: "before a full launch queue",
    NOT_RUNNING: "off the CPU (waiting or preempted)",
}


@dataclass(frozen=True)
class Places:
    """Parts of idle gaps: each gap is cut wherever its thread went elsewhere.

    `gap` is the row in gaps, `range` the row in the range tree (−1: none), `where`
    the code of the API call's name in api_calls, or one of PLACES. The parts of a gap add up to
    it exactly.
    """

    gap: Integers
    start_ns: Integers
    end_ns: Integers
    range: Integers
    where: Integers

    def __len__(self) -> int:
        return len(self.gap)

    @property
    def time_ns(self) -> Integers:
        return self.end_ns - self.start_ns

    def of(self, mine: Mask) -> Places:
        """The parts of the gaps of a mask."""
        rows = np.flatnonzero(mine[self.gap])
        return Places(*(getattr(self, field.name)[rows] for field in fields(self)))


@fact
def cpu_places(trace: Trace) -> Places:
    """The parts of all gaps for which the CPU answers, in no order."""
    found = gaps(trace)
    rows = np.flatnonzero(np.isin(found.cause, CPU_CAUSES))
    parts = _places(trace, found.take(rows))
    return replace(parts, gap=rows[parts.gap])


def _places(trace: Trace, gap: Gaps) -> Places:
    """The parts of these gaps, `gap` their row in them. All their launch calls must be known."""
    parts = [
        _of_thread(trace, gap, np.flatnonzero((gap.thread == thread) & (gap.device == device)))
        for device in groups.different(gap.device)
        for thread in groups.different(gap.thread[gap.device == device])
    ]
    none = np.zeros(0, np.int64)
    row, start, end, where = (
        np.concatenate([part[column] for part in parts] or [none]) for column in range(4)
    )
    thread = gap.thread[row]
    found = attribute(trace, thread, trace.threads["process"][thread], start)
    return Places(row, start, end, np.where(where == ON_ITS_WAY, -1, found.range), where)


def _of_thread(
    trace: Trace, gap: Gaps, rows: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Gap, start, end and place of the parts of one thread's gaps on one device."""
    thread = int(gap.thread[rows[0]])
    rows = rows[np.argsort(gap.start_ns[rows], kind="stable")]
    window = Intervals(gap.start_ns[rows], gap.end_ns[rows])
    queued = np.clip(gap.queued_ns[rows], window.start, window.end)
    call, calling = _outermost(trace, thread, window)
    held = queue_full(trace).by_thread.get(thread, intervals.EMPTY)
    away = _away(trace, thread)
    ranged = _range_edges(trace, int(trace.threads["process"][thread]), window)
    cuts = np.concatenate([*calling, *held, *away, ranged])
    cuts = cuts[intervals.inside(window, cuts)]
    cuts = groups.different(np.concatenate([cuts, window.start, window.end, queued]))
    kept = np.flatnonzero(intervals.inside(window, cuts))
    start, end = cuts[kept], cuts[kept + 1]
    mine = np.searchsorted(window.start, start, side="right") - 1
    where = np.full(len(start), OUTSIDE, np.int64)
    where[intervals.inside(away, start)] = NOT_RUNNING
    place = np.searchsorted(calling.start, start, side="right") - 1
    within = intervals.inside(calling, start)
    names = trace.recorded("api_calls").texts("name").codes
    where[within] = names[call[place[within]]]
    where[intervals.inside(held, start)] = HELD
    where[start >= queued[mine]] = ON_ITS_WAY
    return rows[mine], start, end, where


def _outermost(trace: Trace, thread: int, window: Intervals) -> tuple[Integers, Intervals]:
    """The API calls of a thread that no other call of it contains, in order, and their times.

    Of them those that reach into the windows. Two that merely overlap, as clocks of damaged
    recordings have it, are cut where the later one begins.
    """
    calls = trace.recorded("api_calls")
    rows = np.flatnonzero((calls["thread"] == thread) & (calls["end_ns"] > calls["start_ns"]))
    start, end = calls["start_ns"][rows], calls["end_ns"][rows]
    if (start[1:] < end[:-1]).any():
        order = np.lexsort((-end, start))
        rows, start, end = rows[order], start[order], end[order]
        outer = np.ones(len(rows), bool)
        outer[1:] = end[1:] > end[reaching(end)][:-1]
        rows, start, end = rows[outer], start[outer], end[outer]
        end = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))
    near = intervals.rows_touched(window, start, end)
    return rows[near], Intervals(start[near], end[near])


def _range_edges(trace: Trace, process: int, window: Intervals) -> Integers:
    """When ranges of the process begin or end: a thread without one works in those of others."""
    nesting = range_tree(trace).nesting
    threads = np.flatnonzero(trace.threads["process"] == process).tolist()
    return np.concatenate([nesting.edges(thread, window) for thread in threads])


def _away(trace: Trace, thread: int) -> Intervals:
    """Time in which the thread was off the CPU, where thread scheduling was recorded."""
    runs = trace.recorded("thread_runs")
    mine: Array = runs["thread"] == thread
    return intervals.gaps(intervals.union(runs["start_ns"][mine], runs["end_ns"][mine]))
