"""What the launching thread did during idle gaps: in which call and range, or outside CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.causes import (
    ALLOCATION,
    COMPILATION,
    GRAPH_LAUNCH,
    JIT_COMPILE,
    LAUNCH_LATE,
    MODULE_LOAD,
    PROFILER,
    SYNC_DRAIN,
)
from traceview.facts.idle.gap_bounds import latest_so_far
from traceview.facts.idle.gaps import Gaps, gaps
from traceview.facts.operations.cuda_api import ApiCalls, api_calls, calls_by_thread
from traceview.facts.queue.launch_queue import queue_full
from traceview.facts.ranges.ranges import attribute, range_tree
from traceview.intervals import Intervals, Timed
from traceview.tables import Array, Integers, Mask, RowNumbers
from traceview.trace import Trace, fact

CPU_CAUSES = (
    LAUNCH_LATE,
    SYNC_DRAIN,
    GRAPH_LAUNCH,
    JIT_COMPILE,
    MODULE_LOAD,
    ALLOCATION,
    PROFILER,
    COMPILATION,
)
"""Causes on the CPU: what the launching thread did explains the gap."""

OUTSIDE_CUDA, IN_FLIGHT, QUEUE_FULL, OFF_CPU = -1, -2, -3, -4
"""Activities other than an API call. In flight: launched, and on its way to the GPU. Off the CPU:
waiting or preempted, by the recorded thread scheduling."""


_AT_ONCE = 1 << 14
"""Gaps that are cut together, so that their parts stay in the cache."""


@dataclass(frozen=True)
class CpuActivity(Timed):
    """Parts of idle gaps: each gap is cut wherever the activity of its launching thread changes.

    `gap` is the row in gaps, `range` the row in the range tree (−1: none), `activity` the code of
    the API call's name in api_calls or one of the constants above. The parts of a gap add up to it
    exactly.
    """

    gap: Integers
    start_ns: Integers
    end_ns: Integers
    range: Integers
    activity: Integers

    def __len__(self) -> int:
        return len(self.gap)

    def of_gaps(self, chosen: Mask) -> CpuActivity:
        """The parts of the gaps of a mask."""
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen[self.gap])
        return CpuActivity(*(getattr(self, field.name)[rows] for field in fields(self)))


@fact
def cpu_activity(trace: Trace) -> CpuActivity:
    """The parts of all gaps with a cause on the CPU, in no order."""
    every = gaps(trace)
    rows = np.flatnonzero(np.isin(every.cause, CPU_CAUSES))
    parts = _split(trace, every.take(rows))
    return replace(parts, gap=rows[parts.gap])


class ThreadTime(NamedTuple):
    """What one thread did over time.

    `call` are the outermost API calls, with the code of their names in `name`; `queue_full` is time
    inside of these before a full launch queue. Each of the three is disjoint and in order.
    """

    call: Intervals
    name: RowNumbers
    queue_full: Intervals
    off_cpu: Intervals

    def within(self, first: int, last: int) -> ThreadTime:
        """What reaches into the time between two points."""
        call, full, off = (
            slice(np.searchsorted(each.end, first, side="right"), np.searchsorted(each.start, last))
            for each in (self.call, self.queue_full, self.off_cpu)
        )
        return ThreadTime(
            _sliced(self.call, call),
            self.name[call],
            _sliced(self.queue_full, full),
            _sliced(self.off_cpu, off),
        )


def _sliced(times: Intervals, part: slice) -> Intervals:
    return Intervals(times.start[part], times.end[part])


class GapParts(NamedTuple):
    """Parts of gaps: `gap` is the row of the gap among those given."""

    gap: Array
    start: Integers
    end: Integers
    activity: Integers


def split_gaps(
    idle: Intervals, queued: Integers, thread: ThreadTime, range_edges: Integers
) -> GapParts:
    """Cut the gaps of one device, in order, by what their launching thread did.

    From `queued` on, the work of a gap is in flight. `range_edges` are times at which ranges begin
    or end: a gap is cut there too.
    """
    queued = np.clip(queued, idle.start, idle.end)
    cuts = np.concatenate([*thread.call, *thread.queue_full, *thread.off_cpu, range_edges])
    cuts = cuts[intervals.inside(idle, cuts)]
    cuts = groups.different(np.concatenate([cuts, idle.start, idle.end, queued]))
    kept = np.flatnonzero(intervals.inside(idle, cuts))
    start, end = cuts[kept], cuts[kept + 1]
    gap = np.searchsorted(idle.start, start, side="right") - 1
    activity = np.full(len(start), OUTSIDE_CUDA, np.int64)
    activity[intervals.inside(thread.off_cpu, start)] = OFF_CPU
    call = np.searchsorted(thread.call.start, start, side="right") - 1
    calling = intervals.inside(thread.call, start)
    activity[calling] = thread.name[call[calling]]
    activity[intervals.inside(thread.queue_full, start)] = QUEUE_FULL
    activity[start >= queued[gap]] = IN_FLIGHT
    return GapParts(gap, start, end, activity)


def split_in_turn(
    idle: Intervals, queued: Integers, thread: ThreadTime, range_edges: Integers
) -> Iterator[GapParts]:
    """As split_gaps, some gaps after the others: a million gaps have seven million cuts."""
    edges = np.sort(range_edges)
    for at in range(0, len(idle.start), _AT_ONCE):
        some = slice(at, at + _AT_ONCE)
        near = Intervals(idle.start[some], idle.end[some])
        first, last = near.start[0], near.end[-1]
        between = slice(np.searchsorted(edges, first), np.searchsorted(edges, last, side="right"))
        part = split_gaps(near, queued[some], thread.within(first, last), edges[between])
        yield part._replace(gap=part.gap + at)


def _split(trace: Trace, gaps: Gaps) -> CpuActivity:
    """The parts of these gaps, `gap` being the row among them. Their launch calls are known."""
    parts = [
        part
        for of_device in groups.rows_of(gaps.device).values()
        for thread, rows in groups.rows_of(gaps.thread[of_device]).items()
        for part in _split_of_thread(trace, gaps, thread, of_device[rows])
    ]
    none = np.zeros(0, np.int64)
    gap, start, end, activity = (
        np.concatenate([part[column] for part in parts] or [none]) for column in range(4)
    )
    del parts
    thread = gaps.thread[gap]
    ranges = attribute(trace, thread, trace.threads["process"][thread], start).range
    return CpuActivity(gap, start, end, np.where(activity == IN_FLIGHT, -1, ranges), activity)


def _split_of_thread(trace: Trace, gaps: Gaps, thread: int, rows: RowNumbers) -> Iterator[GapParts]:
    rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    idle = Intervals(gaps.start_ns[rows], gaps.end_ns[rows])
    made = calls_by_thread(trace).get(thread, groups.NO_ROWS)
    call, calling = outermost_calls(api_calls(trace), made, idle)
    names = trace.recorded("api_calls").texts("name").codes
    held = queue_full(trace).by_thread.get(thread, intervals.EMPTY)
    did = ThreadTime(calling, names[call], held, off_cpu(trace, thread))
    edges = _range_edges(trace, int(trace.threads["process"][thread]), idle)
    for part in split_in_turn(idle, gaps.queued_ns[rows], did, edges):
        yield part._replace(gap=rows[part.gap])


def outermost_calls(
    calls: ApiCalls, made: RowNumbers, window: Intervals
) -> tuple[RowNumbers, Intervals]:
    """Rows and times of the calls of a thread inside no other, those that reach into a window.

    `made` are the rows of all calls of the thread.

    Two that merely overlap, as clocks of damaged recordings have it, are cut where the later one
    begins.
    """
    rows = made[calls.end_ns[made] > calls.start_ns[made]]
    start, end = calls.start_ns[rows], calls.end_ns[rows]
    if (start[1:] < end[:-1]).any():
        order = np.lexsort((-end, start))
        rows, start, end = rows[order], start[order], end[order]
        outer = np.ones(len(rows), bool)
        outer[1:] = end[1:] > end[latest_so_far(end)][:-1]
        rows, start, end = rows[outer], start[outer], end[outer]
        end = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))
    near = intervals.rows_touched(window, start, end)
    return rows[near], Intervals(start[near], end[near])


def _range_edges(trace: Trace, process: int, window: Intervals) -> Integers:
    """When ranges of the process begin or end: a thread without one works in those of others."""
    nesting = range_tree(trace).nesting
    threads = np.flatnonzero(trace.threads["process"] == process).tolist()
    return np.concatenate([nesting.edges(thread, window) for thread in threads])


def off_cpu(trace: Trace, thread: int) -> Intervals:
    """Time in which the thread was off the CPU, where thread scheduling was recorded."""
    runs = trace.recorded("thread_runs")
    own: Mask = runs["thread"] == thread
    return intervals.gaps(intervals.union(runs["start_ns"][own], runs["end_ns"][own]))
