"""What the launching thread did during idle gaps: in which call and range, or outside CUDA."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gap_parts import IN_FLIGHT, ThreadTime, split_gaps
from traceview.facts.idle.gaps import Gaps, gaps
from traceview.facts.operations.cuda_api import ApiCalls, api_calls, calls_by_thread
from traceview.facts.queue import queue_full
from traceview.facts.ranges.ranges import open_ranges, range_tree
from traceview.intervals import Intervals, Timed
from traceview.records import record
from traceview.tables import Integers, Mask, RowNumbers, constant, row_numbers
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSES

CPU_CAUSES = tuple(code for code, each in enumerate(CAUSES) if each.on_cpu)
"""Causes on the CPU: the activity of the launching thread explains the gap."""


_AT_ONCE = 1 << 16
"""Gaps whose parts are computed together."""


@record
class CpuActivity(Timed):
    """Parts of idle gaps: each gap is cut wherever the activity of its launching thread changes.

    `gap` is the row in gaps, `range` the row in the range tree (−1: none), `activity` the code of
    the API call's name in api_calls or one of the constants of `gap_parts`, such as OUTSIDE_CUDA.
    The parts of a gap add up to it exactly.
    """

    gap: RowNumbers
    start_ns: Integers
    end_ns: Integers
    range: RowNumbers
    activity: RowNumbers

    def __len__(self) -> int:
        return len(self.gap)


def cpu_activity(trace: Trace, rows: Integers) -> Iterator[CpuActivity]:
    """Yield the parts of those gaps among `rows` whose cause is on the CPU, in batches of gaps.

    All parts of a gap are in one batch. A million gaps have four million parts, so the parts are
    never all in memory.
    """
    every = gaps(trace)
    chosen = row_numbers(rows[np.isin(every.cause[rows], CPU_CAUSES)])
    for of_device in groups.rows_of(every.device[chosen]).values():
        on_device = chosen[of_device]
        for thread, own in groups.rows_of(every.thread[on_device]).items():
            yield from _of_thread(trace, every, thread, on_device[own])


def _of_thread(trace: Trace, gaps: Gaps, thread: int, rows: RowNumbers) -> Iterator[CpuActivity]:
    """Yield the parts of gaps of one device whose launch calls come from one thread."""
    if not groups.in_order(gaps.start_ns[rows]):
        rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    idle, process = _times(gaps, rows), int(trace.threads["process"][thread])
    thread_time, edges = (
        _thread_time(trace, thread),
        intervals.ascending(_range_edges(trace, process, idle)),
    )
    # Where ranges of a thread overlap without nesting, each look-up walks all of them.
    at_once = len(rows) if range_tree(trace).nesting.walked else _AT_ONCE
    for first in range(0, len(rows), at_once):
        some = rows[first : first + at_once]
        gap, start, end, activity = split_gaps(
            _times(gaps, some), gaps.queued_ns[some], thread_time, edges
        )
        one_thread, one_process = (constant(row, len(start), np.int32) for row in (thread, process))
        ranges = open_ranges(trace, one_thread, one_process, start)
        ranges[activity == IN_FLIGHT] = -1
        yield CpuActivity(some[gap], start, end, ranges, activity)


def _times(gaps: Gaps, rows: RowNumbers) -> Intervals:
    return Intervals(gaps.start_ns[rows], gaps.end_ns[rows])


def _thread_time(trace: Trace, thread: int) -> ThreadTime:
    call_rows = calls_by_thread(trace).get(thread, groups.NO_ROWS)
    call, calling = outermost_calls(api_calls(trace), call_rows)
    names = trace.recorded("api_calls").texts("name").codes
    held = queue_full(trace).by_thread.get(thread, intervals.EMPTY)
    return ThreadTime(calling, names[call], held, off_cpu(trace, thread))


def outermost_calls(calls: ApiCalls, made: RowNumbers) -> tuple[RowNumbers, Intervals]:
    """Rows and times of a thread's calls that lie inside no other; `made` are the rows of all.

    Where two calls merely overlap, as in damaged recordings, the earlier one is cut where the
    later one begins.
    """
    start, end = calls.start_ns, calls.end_ns
    outermost = intervals.outermost(start, end, made)
    if outermost is None:
        return outermost_calls(calls, made[np.lexsort((-end[made], start[made]))])
    return outermost


def _range_edges(trace: Trace, process: int, window: Intervals) -> Integers:
    """Times in the window at which ranges of the process begin or end.

    Those of all threads count: a thread without a range of its own works in another thread's.
    """
    nesting = range_tree(trace).nesting
    threads = np.flatnonzero(trace.threads["process"] == process).tolist()
    return np.concatenate([nesting.edges(thread, window) for thread in threads])


def off_cpu(trace: Trace, thread: int) -> Intervals:
    """Time in which the thread was off the CPU, where thread scheduling was recorded."""
    runs = trace.recorded("thread_runs")
    own: Mask = runs["thread"] == thread
    return intervals.gaps(intervals.union(runs["start_ns"][own], runs["end_ns"][own]))
