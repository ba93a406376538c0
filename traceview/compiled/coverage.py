"""Functions of intervals in C, one pass each: unions, covered time, overlaps, lookups of times.

Except `places`, they need the compiled library: see `is_available`. All times are int64.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p
from typing import Literal

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.tables import Array, Integers, RowNumbers

_FUNCTIONS = (
    "traceview_union",
    "traceview_union_on_lanes",
    "traceview_places",
    "traceview_rows_inside",
    "traceview_intersection",
    "traceview_most_open",
    "traceview_covered_before",
    "traceview_outermost",
    "traceview_overlapping",
)


class _CCovered(Structure):
    _fields_ = (
        ("start", c_void_p),
        ("end", c_void_p),
        ("count", c_int64),
    )


def is_available() -> bool:
    """Whether the compiled library has these functions."""
    return library.has(*_FUNCTIONS)


def covered(start: Array, end: Array, least: int = 1) -> tuple[Integers, Integers]:
    """Start and end of the times that at least `least` (1 or 2) of the intervals cover.

    The intervals are given in order of start; empty ones cover nothing. Touching times merge.
    """
    start, end = _integers(start), _integers(end)
    union = _Union(len(start))
    reason = library.call(
        "traceview_union",
        pointer(start),
        pointer(end),
        c_int64(len(start)),
        c_int64(least),
        union.pointer,
    )
    assert reason is None, reason
    return union.columns


def covered_on_lanes(
    lane: Array, start: Array, end: Array, lanes: int
) -> tuple[Integers, Integers, Integers]:
    """Start and end of the union on each lane, lane after lane, and its length per lane.

    The intervals are given in order of start; those on a negative lane are left out.
    """
    lane = np.ascontiguousarray(lane, np.int32)
    start, end = _integers(start), _integers(end)
    union, firsts, ends = _Union(len(start)), np.zeros(lanes, np.int64), np.empty(lanes, np.int64)
    reason = library.call(
        "traceview_union_on_lanes",
        pointer(lane),
        pointer(start),
        pointer(end),
        c_int64(len(start)),
        c_int64(lanes),
        pointer(firsts),
        pointer(ends),
        union.pointer,
    )
    assert reason is None, reason
    return *union.columns, np.diff(ends, prepend=0)


class _Union:
    """Buffers for the union of up to `rows` intervals."""

    def __init__(self, rows: int) -> None:
        self._made = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._covered = _CCovered(*map(address, self._made))
        self.pointer = ctypes.byref(self._covered)

    @property
    def columns(self) -> tuple[Integers, Integers]:
        """Start and end, copied where shorter than the buffers, so that these can be freed."""
        count = self._covered.count
        start, end = (each if count == len(each) else each[:count].copy() for each in self._made)
        return start, end


def places(ordered: Array, values: Array, side: Literal["left", "right"]) -> Integers:
    """`np.searchsorted(ordered, values, side)`, many times faster where values mostly ascend."""
    if not is_available():
        return np.searchsorted(ordered, values, side=side)
    ordered, values = _integers(ordered), _integers(values)
    positions = np.empty(len(values), np.int64)
    library.call(
        "traceview_places",
        pointer(ordered),
        c_int64(len(ordered)),
        pointer(values),
        c_int64(len(values)),
        c_int64(side == "right"),
        pointer(positions),
    )
    return positions


def rows_inside(start: Array, end: Array, time: Array) -> Integers:
    """Row numbers of the ascending times that lie inside a union."""
    start, end, time = _integers(start), _integers(end), _integers(time)
    rows, count = np.empty(len(time), np.int64), c_int64()
    library.call(
        "traceview_rows_inside",
        pointer(start),
        pointer(end),
        c_int64(len(start)),
        pointer(time),
        c_int64(len(time)),
        pointer(rows),
        ctypes.byref(count),
    )
    return rows[: count.value].copy()


def intersection(
    start: Array, end: Array, other_start: Array, other_end: Array
) -> tuple[Integers, Integers]:
    """Start and end of the intersection of two unions."""
    start, end, other_start, other_end = map(_integers, (start, end, other_start, other_end))
    both = _Union(len(start) + len(other_start))
    library.call(
        "traceview_intersection",
        pointer(start),
        pointer(end),
        c_int64(len(start)),
        pointer(other_start),
        pointer(other_end),
        c_int64(len(other_start)),
        both.pointer,
    )
    return both.columns


def most_open(starts: Array, ends: Array, first: int) -> int:
    """The most intervals open at a start at or after `first`; `starts` and `ends` ascend.

    At equal times an end comes before a start.
    """
    starts, ends, most = _integers(starts), _integers(ends), c_int64()
    library.call(
        "traceview_most_open",
        pointer(starts),
        pointer(ends),
        c_int64(len(starts)),
        c_int64(first),
        ctypes.byref(most),
    )
    return most.value


def covered_before(start: Array, end: Array, time: Array) -> Integers:
    """For each time, the length of the union before it."""
    start, end, time = _integers(start), _integers(end), _integers(time)
    lengths_before = np.zeros(len(start) + 1, np.int64)
    np.cumsum(end - start, out=lengths_before[1:])
    length = np.empty(len(time), np.int64)
    library.call(
        "traceview_covered_before",
        pointer(start),
        pointer(end),
        pointer(lengths_before),
        c_int64(len(start)),
        pointer(time),
        c_int64(len(time)),
        pointer(length),
    )
    return length


def outermost(
    start: Array, end: Array, rows: RowNumbers
) -> tuple[RowNumbers, Integers, Integers] | None:
    """Row, start and end of those intervals, among `rows`, that lie inside no other.

    An end after the next start is cut to that start; empty intervals are left out. None if the
    rows are not in order of start, the longest first where starts are equal.
    """
    start, end = _integers(start), _integers(end)
    rows, count = np.ascontiguousarray(rows, np.int32), c_int64()
    outer = np.empty(len(rows), np.int32)
    begins, ends = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    reason = library.call(
        "traceview_outermost",
        pointer(start),
        pointer(end),
        pointer(rows),
        c_int64(len(rows)),
        pointer(outer),
        pointer(begins),
        pointer(ends),
        ctypes.byref(count),
    )
    filled = slice(count.value)
    return None if reason else (outer[filled], begins[filled], ends[filled])


def overlapping(start: Array, end: Array) -> tuple[bool, Integers]:
    """Whether intervals are in order of start, longest first, and the rows that overlap another.

    The rows mean nothing for intervals that are not in order.
    """
    start, end = _integers(start), _integers(end)
    rows, count, ordered = np.empty(len(start), np.int64), c_int64(), c_int64()
    library.call(
        "traceview_overlapping",
        pointer(start),
        pointer(end),
        c_int64(len(start)),
        pointer(rows),
        ctypes.byref(count),
        ctypes.byref(ordered),
    )
    return bool(ordered.value), rows[: count.value].copy()


def _integers(values: Array) -> Integers:
    return np.ascontiguousarray(values, np.int64)
