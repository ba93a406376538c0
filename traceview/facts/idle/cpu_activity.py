"""What the launching thread did during idle gaps: in which call and range, or outside CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

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
from traceview.facts.idle.gap_parts import IN_FLIGHT, ThreadTime, split_gaps
from traceview.facts.idle.gaps import Gaps, gaps
from traceview.facts.operations.cuda_api import ApiCalls, api_calls, calls_by_thread
from traceview.facts.queue.launch_queue import queue_full
from traceview.facts.ranges.ranges import open_ranges, range_tree
from traceview.intervals import Intervals, Timed
from traceview.tables import (
    Array,
    Integers,
    Mask,
    RowNumbers,
    constant,
    joined,
    picked,
    row_numbers,
)
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


_AT_ONCE = 1 << 14
"""Gaps whose parts are given in turn."""
_MOST_TIMES = 1 << 20
"""Parts whose ranges are looked up at a time."""


@dataclass(frozen=True)
class CpuActivity(Timed):
    """Parts of idle gaps: each gap is cut wherever the activity of its launching thread changes.

    `gap` is the row in gaps, `range` the row in the range tree (−1: none), `activity` the code of
    the API call's name in api_calls or one of the constants above. The parts of a gap add up to it
    exactly.
    """

    gap: RowNumbers
    start_ns: Integers
    end_ns: Integers
    range: RowNumbers
    activity: RowNumbers

    def __len__(self) -> int:
        return len(self.gap)

    def columns(self) -> tuple[Array, ...]:
        return self.gap, self.start_ns, self.end_ns, self.range, self.activity

    def of_gaps(self, chosen: Mask) -> CpuActivity:
        """The parts of the gaps of a mask."""
        own = picked(chosen, self.gap)
        if own.all():
            return self
        rows = np.flatnonzero(own)
        return CpuActivity(*(column[rows] for column in self.columns()))

    def in_turn(self) -> Iterator[CpuActivity]:
        """The parts of some gaps after the others: what is computed of few stays in the cache."""
        first = np.flatnonzero(groups.opens(self.gap))[::_AT_ONCE].tolist()
        for start, end in pairwise([*(first or [0]), len(self)]):
            yield CpuActivity(*(column[start:end] for column in self.columns()))


_NO_ACTIVITY = CpuActivity(
    groups.NO_ROWS, *intervals.EMPTY, range=groups.NO_ROWS, activity=groups.NO_ROWS
)


@fact
def cpu_activity(trace: Trace) -> CpuActivity:
    """The parts of all gaps with a cause on the CPU, in no order but those of a gap together."""
    every = gaps(trace)
    chosen = np.isin(every.cause, CPU_CAUSES)
    if chosen.all():
        return _split(trace, every)
    rows = row_numbers(np.flatnonzero(chosen))
    parts = _split(trace, every.take(rows))
    return replace(parts, gap=rows[parts.gap])


def _split(trace: Trace, gaps: Gaps) -> CpuActivity:
    """The parts of these gaps, `gap` being the row among them. Their launch calls are known."""
    parts = [
        _split_of_thread(trace, gaps, thread, of_device[rows])
        for of_device in groups.rows_of(gaps.device).values()
        for thread, rows in groups.rows_of(gaps.thread[of_device]).items()
    ]
    columns = zip(*(each.columns() for each in parts or [_NO_ACTIVITY]), strict=True)
    return CpuActivity(*map(joined, columns))


def _split_of_thread(trace: Trace, gaps: Gaps, thread: int, rows: RowNumbers) -> CpuActivity:
    if not groups.in_order(gaps.start_ns[rows]):
        rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    idle = Intervals(gaps.start_ns[rows], gaps.end_ns[rows])
    made = calls_by_thread(trace).get(thread, groups.NO_ROWS)
    call, calling = outermost_calls(api_calls(trace), made)
    names = trace.recorded("api_calls").texts("name").codes
    held = queue_full(trace).by_thread.get(thread, intervals.EMPTY)
    did = ThreadTime(calling, names[call], held, off_cpu(trace, thread))
    process = int(trace.threads["process"][thread])
    edges = _range_edges(trace, process, idle)
    gap, start, end, activity = split_gaps(idle, gaps.queued_ns[rows], did, edges)
    ranges = np.empty(len(start), np.int32)
    for part in groups.parts(len(start), least=_MOST_TIMES):
        time = start[part]
        one_thread, one_process = (constant(row, len(time), np.int32) for row in (thread, process))
        ranges[part] = open_ranges(trace, one_thread, one_process, time)
    ranges[activity == IN_FLIGHT] = -1
    return CpuActivity(rows[gap], start, end, ranges, activity)


def outermost_calls(calls: ApiCalls, made: RowNumbers) -> tuple[RowNumbers, Intervals]:
    """Rows and times of the calls of a thread inside no other; `made` are the rows of all.

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
    return rows, Intervals(start, end)


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
