"""Idle gaps of a device, cut by what their launching thread did meanwhile."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.intervals import Intervals
from traceview.tables import Integers, RowNumbers, row_numbers

OUTSIDE_CUDA, IN_FLIGHT, QUEUE_FULL, OFF_CPU = -1, -2, -3, -4
"""Activities other than an API call. In flight: launched, and on its way to the GPU. Off the CPU:
waiting or preempted, by the recorded thread scheduling."""

_FUNCTION = "traceview_split_gaps"


class ThreadTime(NamedTuple):
    """Activities of one thread over time.

    `call` are the outermost API calls and `name` the codes of their names; `queue_full` is the time
    within these calls that they waited for room in the launch queue; `off_cpu` is time off the CPU.
    The intervals of each activity are disjoint and in order.
    """

    call: Intervals
    name: RowNumbers
    queue_full: Intervals
    off_cpu: Intervals

    def within(self, first: int, last: int) -> ThreadTime:
        """The activities that overlap [first, last), in ns."""
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
    """Parts of the gaps given to `split_gaps`; `gap` is the row of the part's gap among these."""

    gap: RowNumbers
    start: Integers
    end: Integers
    activity: RowNumbers


def split_gaps(
    idle: Intervals, queued: Integers, thread: ThreadTime, range_edges: Integers
) -> GapParts:
    """Cut the gaps of one device, given in order, by the activity of their launching thread.

    From `queued` on, the work of a gap is in flight. `range_edges` are times at which ranges begin
    or end, ascending: a gap is cut there too.
    """
    if not len(idle.start):
        return _NO_PARTS
    queued = np.clip(queued, idle.start, idle.end)
    first, last = idle.start[0], idle.end[-1]
    begun, ended = np.searchsorted(range_edges, first), np.searchsorted(range_edges, last)
    split = _split_compiled if library.has(_FUNCTION) else _split
    return split(idle, queued, thread.within(first, last), range_edges[begun:ended])


def _split(
    idle: Intervals, queued: Integers, thread: ThreadTime, range_edges: Integers
) -> GapParts:
    cuts = np.concatenate([*thread.call, *thread.queue_full, *thread.off_cpu, range_edges])
    cuts = cuts[intervals.inside(idle, cuts)]
    cuts = groups.different(np.concatenate([cuts, idle.start, idle.end, queued]))
    kept = np.flatnonzero(intervals.inside(idle, cuts))
    start, end = cuts[kept], cuts[kept + 1]
    gap = row_numbers(np.searchsorted(idle.start, start, side="right") - 1)
    activity = np.full(len(start), OUTSIDE_CUDA, np.int32)
    activity[intervals.inside(thread.off_cpu, start)] = OFF_CPU
    call = np.searchsorted(thread.call.start, start, side="right") - 1
    calling = intervals.inside(thread.call, start)
    activity[calling] = thread.name[call[calling]]
    activity[intervals.inside(thread.queue_full, start)] = QUEUE_FULL
    activity[start >= queued[gap]] = IN_FLIGHT
    return GapParts(gap, start, end, activity)


_NO_PARTS = GapParts(
    np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)
)


class _CSpans(Structure):
    _fields_ = (("start", c_void_p), ("end", c_void_p), ("count", c_int64))


class _CActivity(Structure):
    _fields_ = (
        ("calls", _CSpans),
        ("names", c_void_p),
        ("queue_full", _CSpans),
        ("off_cpu", _CSpans),
        ("edges", c_void_p),
        ("edge_count", c_int64),
    )


class _CParts(Structure):
    _fields_ = (
        ("gap", c_void_p),
        ("start", c_void_p),
        ("end", c_void_p),
        ("activity", c_void_p),
        ("count", c_int64),
    )


def _split_compiled(
    idle: Intervals, queued: Integers, thread: ThreadTime, edges: Integers
) -> GapParts:
    idle, calls, full, off = (_contiguous(each) for each in (idle, *_times(thread)))
    names, queued = np.ascontiguousarray(thread.name, np.int32), np.ascontiguousarray(queued)
    activity = _CActivity(
        _spans(calls), address(names), _spans(full), _spans(off), address(edges), len(edges)
    )
    # A gap is cut where its work is queued, at edges, and where other times begin and end.
    most = 2 * sum(len(each.start) for each in (idle, calls, full, off)) + len(edges)
    gap, activity_of = np.empty(most, np.int32), np.empty(most, np.int32)
    start, end = np.empty(most, np.int64), np.empty(most, np.int64)
    parts = _CParts(address(gap), address(start), address(end), address(activity_of))
    given = (ctypes.byref(_spans(idle)), pointer(queued), ctypes.byref(activity))
    library.call(_FUNCTION, *given, ctypes.byref(parts))
    made = slice(parts.count)
    return GapParts(gap[made], start[made], end[made], activity_of[made])


def _times(thread: ThreadTime) -> tuple[Intervals, ...]:
    return thread.call, thread.queue_full, thread.off_cpu


def _contiguous(times: Intervals) -> Intervals:
    return Intervals(*(np.ascontiguousarray(each, np.int64) for each in times))


def _spans(times: Intervals) -> _CSpans:
    return _CSpans(address(times.start), address(times.end), len(times.start))
