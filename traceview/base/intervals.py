"""Arithmetic of half-open intervals [start, end), as pairs of int64 arrays.

An interval that ends where it starts is empty and covers nothing. Every function is a linear pass
after at most one sort.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from typing import Literal, NamedTuple, Protocol

import numpy as np

from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Table


class Intervals(NamedTuple):
    """Start and end of each interval."""

    start: Integers
    end: Integers

    @property
    def length(self) -> Integers:
        return self.end - self.start

    def total(self) -> int:
        """Sum of the lengths; of a union, the time covered."""
        return int(self.length.sum())


class Timed:
    """Rows that each start and end at a time: a base of dataclasses that hold such columns."""

    start_ns: Integers
    end_ns: Integers

    @property
    def duration_ns(self) -> Integers:
        return self.end_ns - self.start_ns


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def by_start(start: Integers, end: Integers) -> Intervals:
    """The intervals sorted by start."""
    if len(start) and np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        return Intervals(start[order], end[order])
    return Intervals(start, end)


def union(start: Integers, end: Integers) -> Intervals:
    """The union as disjoint intervals in order; touching intervals merge."""
    return _covered(by_start(start, end), least=1)


class HasTimes(Protocol):
    """Anything with the start and end of each row, as columns."""

    @property
    def start_ns(self) -> Integers: ...
    @property
    def end_ns(self) -> Integers: ...


def covered(rows: HasTimes | Table, chosen: Array | slice = slice(None)) -> Intervals:
    """The time of the chosen rows, as a union."""
    if isinstance(rows, Table):
        return union(rows["start_ns"][chosen], rows["end_ns"][chosen])
    return union(rows.start_ns[chosen], rows.end_ns[chosen])


def covered_twice(start: Integers, end: Integers) -> Intervals:
    """The time that at least two of the intervals cover, as a union."""
    return _covered(by_start(start, end), least=2)


def _covered(ordered: Intervals, least: int) -> Intervals:
    """The times that at least `least` (1 or 2) of the intervals cover, which are in order."""
    found = _Union(len(ordered.start))
    reason = library.call("traceview_union", *ordered, len(ordered.start), least, found)
    assert reason is None, reason
    return found.intervals


class _Union(Structure):
    """Room for a union of up to `rows` intervals."""

    _fields_ = (("start", c_void_p), ("end", c_void_p), ("count", c_int64))

    def __init__(self, rows: int) -> None:
        self._room = np.empty(rows, np.int64), np.empty(rows, np.int64)
        super().__init__(*map(address, self._room), 0)

    @property
    def intervals(self) -> Intervals:
        """Copies where shorter than the room for them, which can then be freed."""
        count: int = self.count
        return Intervals(
            *(each if count == len(each) else each[:count].copy() for each in self._room)
        )


def union_on_lanes(
    lane: Array, start: Integers, end: Integers, lanes: int
) -> tuple[Intervals, Integers]:
    """The union on each of `lanes` lanes, lane after lane, and the number of intervals of each.

    The intervals are given in order of start; those on a negative lane are left out.
    """
    rows, found = len(start), _Union(len(start))
    firsts, ends = np.zeros(lanes, np.int64), np.empty(lanes, np.int64)
    given = (lane, start, end, rows, lanes, firsts, ends, found)
    reason = library.call("traceview_union_on_lanes", *given)
    assert reason is None, reason
    return found.intervals, np.diff(ends, prepend=0)


def gaps(covered: Intervals) -> Intervals:
    """The gaps between the intervals of a union."""
    return Intervals(covered.end[:-1], covered.start[1:])


def complement(covered: Intervals, first: int, last: int) -> Intervals:
    """The part of [first, last) that a union does not cover."""
    start = np.concatenate(([first], np.clip(covered.end, first, last)))
    end = np.concatenate((np.clip(covered.start, first, last), [last]))
    free = end > start
    return Intervals(start[free], end[free])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """The intersection of two unions."""
    both = _Union(len(one.start) + len(other.start))
    given = (*one, len(one.start), *other, len(other.start), both)
    library.call("traceview_intersection", *given)
    return both.intervals


def covered_before(covered: Intervals, time: Integers) -> Integers:
    """For each time, the length of the union before it."""
    lengths_before = np.zeros(len(covered.start) + 1, np.int64)
    np.cumsum(covered.length, out=lengths_before[1:])
    length = np.empty(len(time), np.int64)
    given = (*covered, lengths_before, len(covered.start), time, len(time), length)
    library.call("traceview_covered_before", *given)
    return length


def overlap(covered: Intervals, start: Integers, end: Integers) -> Integers:
    """For each [start, end), the length that a union covers."""
    return covered_before(covered, end) - covered_before(covered, start)


def places(ordered: Array, values: Array, side: Literal["left", "right"]) -> Integers:
    """`np.searchsorted(ordered, values, side)`, many times faster where values mostly ascend."""
    found = np.empty(len(values), np.int64)
    given = (ordered, len(ordered), values, len(values), side == "right", found)
    library.call("traceview_places", *given)
    return found


def inside(covered: Intervals, time: Integers) -> Mask:
    """True for times inside a union."""
    if not len(covered.start):
        return np.zeros(len(time), bool)
    begun = places(covered.start, time, side="right")
    result: Mask = (begun > 0) & (time < covered.end[np.maximum(begun, 1) - 1])
    return result


def rows_inside(covered: Intervals, time: Integers) -> Integers:
    """Row numbers of the ascending times that lie inside a union.

    Looks up the edges of the union among the times, or the times in it, whichever are fewer.
    """
    if len(time) < 2 * len(covered.start):
        rows, found = np.empty(len(time), np.int64), c_int64()
        given = (*covered, len(covered.start), time, len(time), rows, found)
        library.call("traceview_rows_inside", *given)
        return rows[: found.value].copy()
    first, end = (places(time, edge, side="left") for edge in covered)
    count = np.maximum(end - first, 0)
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def ascending(times: Integers) -> Integers:
    """The times sorted.

    They mostly ascend already, but numpy's vectorized sort is faster than its merge sort even so.
    """
    return np.sort(times) if np.any(times[1:] < times[:-1]) else times


class Depth(NamedTuple):
    """Number of intervals open at once."""

    most: int
    mean: float
    """Average over time from the first start to the last end."""


def depth(start: Integers, end: Integers, counted: Mask | None = None) -> Depth:
    """Maximum and mean number of open intervals. At equal times an end comes before a start.

    With `counted`, both are over the time from the first start to the last end of these intervals.
    The others still count as open, except those that start after the last counted start. Empty
    intervals are ignored.
    """
    counted = np.ones(len(start), bool) if counted is None else counted
    real = end > start
    if not real.all():
        start, end, counted = start[real], end[real], counted[real]
    if not counted.any():
        return Depth(0, 0.0)
    if counted.all():
        first, last = int(start.min()), int(end.max())
        inside = end - start
    else:
        first, last = int(start[counted].min()), int(end[counted].max())
        early = start <= start[counted].max()
        start, end = start[early], end[early]
        inside = np.clip(end, first, last) - np.clip(start, first, last)
    most = c_int64()
    given = (ascending(start), ascending(end), len(start), first, most)
    library.call("traceview_most_open", *given)
    return Depth(most.value, float(inside.sum()) / (last - first))


def running(begun: Integers, ended: Integers) -> tuple[Integers, Integers]:
    """Each time at which an interval begins or ends, and how many are open from then on.

    `begun` and `ended` are their start and end times, each ascending.
    """
    changes = len(begun) + len(ended)
    times, values, count = np.empty(changes, np.int64), np.empty(changes, np.int64), c_int64()
    given = (begun, len(begun), ended, len(ended), times, values, count)
    library.call("traceview_running", *given)
    return times[: count.value], values[: count.value]


def outermost(start: Array, end: Array, rows: RowNumbers) -> tuple[RowNumbers, Intervals] | None:
    """Those intervals, among `rows`, that lie inside no other: their rows and times.

    An end after the next start is cut to that start; empty intervals are left out. None if the
    rows are not in order of start, the longest first where starts are equal.
    """
    outer, found = np.empty(len(rows), np.int32), c_int64()
    begins, ends = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    given = (start, end, rows, len(rows), outer, begins, ends, found)
    reason = library.call("traceview_outermost", *given)
    filled = slice(found.value)
    return None if reason else (outer[filled], Intervals(begins[filled], ends[filled]))


def overlapping(start: Array, end: Array) -> tuple[bool, Integers]:
    """Whether intervals are in order of start, longest first, and the rows that overlap another.

    The rows mean nothing for intervals that are not in order.
    """
    rows, found, ordered = np.empty(len(start), np.int64), c_int64(), c_int64()
    library.call("traceview_overlapping", start, end, len(start), rows, found, ordered)
    return bool(ordered.value), rows[: found.value].copy()


# Exclusive time: at each instant of a window at most one of the intervals that cover it.


def exclusive_ns(start: Integers, end: Integers, precedence: Array, window: Intervals) -> Integers:
    """Time of each interval that belongs to it alone, in ns; the times sum to their union's.

    An instant belongs to the interval of least `precedence`, among equals to the one that started
    first, then to the first row. Rows are in order of start.
    """
    own, free = np.zeros(len(start), np.int64), window
    for level in np.flatnonzero(np.bincount(precedence)).tolist():
        rows = np.flatnonzero((precedence == level) & (end > start))
        if not len(rows):
            continue
        # Earlier intervals cover this one up to their latest end so far.
        reach = np.maximum.accumulate(end[rows])
        begin = np.maximum(start[rows], np.append(start[rows[:1]], reach[:-1]))
        own[rows] = overlap(free, np.minimum(begin, end[rows]), end[rows])
        free = without(free, union(start[rows], end[rows]))
    return own


def without(window: Intervals, claimed: Intervals) -> Intervals:
    """The part of the union `window` that the union `claimed` does not cover."""
    if not len(window.start) or not len(claimed.start):
        return window
    first, last = int(window.start[0]), int(window.end[-1])
    return intersection(window, complement(claimed, first, last))
