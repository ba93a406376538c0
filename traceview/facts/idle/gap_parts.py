"""Idle gaps of a device, cut by what their launching thread did meanwhile."""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from typing import Any, NamedTuple

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address
from traceview.intervals import Intervals
from traceview.tables import Integers, RowNumbers

OUTSIDE_CUDA, IN_FLIGHT, QUEUE_FULL, OFF_CPU = -1, -2, -3, -4
"""Activities other than an API call. In flight: launched, and on its way to the GPU. Off the CPU:
waiting or preempted, by the recorded thread scheduling."""


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
        return GapParts(*(np.zeros(0, kind) for kind in _PART_TYPES))
    first, last = idle.start[0], idle.end[-1]
    begun, ended = np.searchsorted(range_edges, first), np.searchsorted(range_edges, last)
    near, edges = thread.within(first, last), np.ascontiguousarray(range_edges[begun:ended])
    times = (idle, near.call, near.queue_full, near.off_cpu)
    gaps, calls, full, off = (_Spans(each) for each in times)
    names = np.ascontiguousarray(near.name, np.int32)
    activity = _Activity(calls, address(names), full, off, address(edges), len(edges))
    # A gap is cut where its work is queued, at edges, and where other times begin and end.
    most = 2 * sum(len(each.start) for each in times) + len(edges)
    columns = [np.empty(most, kind) for kind in _PART_TYPES]
    parts = _Parts(*map(address, columns))
    queued = np.clip(queued, idle.start, idle.end)
    library.call("traceview_split_gaps", gaps, queued, activity, parts)
    return GapParts(*(column[: parts.count] for column in columns))


_PART_TYPES: tuple[Any, ...] = (np.int32, np.int64, np.int64, np.int32)


class _Spans(Structure):
    _fields_ = (("start", c_void_p), ("end", c_void_p), ("count", c_int64))

    def __init__(self, times: Intervals) -> None:
        self._held = [np.ascontiguousarray(each, np.int64) for each in times]
        super().__init__(*map(address, self._held), len(times.start))


class _Activity(Structure):
    _fields_ = (
        ("calls", _Spans),
        ("names", c_void_p),
        ("queue_full", _Spans),
        ("off_cpu", _Spans),
        ("edges", c_void_p),
        ("edge_count", c_int64),
    )


class _Parts(Structure):
    _fields_ = (
        ("gap", c_void_p),
        ("start", c_void_p),
        ("end", c_void_p),
        ("activity", c_void_p),
        ("count", c_int64),
    )
