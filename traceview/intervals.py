"""Arithmetic of half-open intervals [start, end), as pairs of int64 arrays.

An interval that ends where it starts is empty and covers nothing. Every function is a linear pass
after at most one sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.compiled import coverage
from traceview.tables import Integers, Mask


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
    if coverage.is_available():
        return Intervals(*coverage.covered(*by_start(start, end)))
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return EMPTY
    start, end = by_start(start, end)
    reach = np.maximum.accumulate(end)
    opens = np.empty(len(start), bool)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    closes = np.append(opens[1:], True)
    return Intervals(start[opens], reach[closes])


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
    if not len(one.start) or not len(other.start):
        return EMPTY
    if coverage.is_available():
        return Intervals(*coverage.intersection(*one, *other))
    first = int(min(one.start[0], other.start[0]))
    last = int(max(one.end[-1], other.end[-1]))
    free = [complement(each, first, last) for each in (one, other)]
    left_out = union(
        np.concatenate([each.start for each in free]), np.concatenate([each.end for each in free])
    )
    return complement(left_out, first, last)


def covered_before(covered: Intervals, time: Integers) -> Integers:
    """For each time, the length of the union before it."""
    if not len(covered.start):
        return np.zeros(len(time), np.int64)
    if coverage.is_available():
        return coverage.covered_before(covered.start, covered.end, time)
    lengths_before = np.concatenate(([0], np.cumsum(covered.length)))
    begun = np.searchsorted(covered.start, time, side="right")
    left = np.maximum(covered.end[np.maximum(begun, 1) - 1] - time, 0)
    result: Integers = lengths_before[begun] - np.where(begun > 0, left, 0)
    return result


def overlap(covered: Intervals, start: Integers, end: Integers) -> Integers:
    """For each [start, end), the length that a union covers."""
    return covered_before(covered, end) - covered_before(covered, start)


def inside(covered: Intervals, time: Integers) -> Mask:
    """True for times inside a union."""
    if not len(covered.start):
        return np.zeros(len(time), bool)
    begun = coverage.places(covered.start, time, side="right")
    result: Mask = (begun > 0) & (time < covered.end[np.maximum(begun, 1) - 1])
    return result


def rows_inside(covered: Intervals, time: Integers) -> Integers:
    """Row numbers of the ascending times that lie inside a union.

    Looks up the edges of the union among the times, or the times in it, whichever are fewer.
    """
    if len(time) < 2 * len(covered.start):
        if coverage.is_available():
            return coverage.rows_inside(*covered, time)
        return np.flatnonzero(inside(covered, time))
    first, end = (coverage.places(time, edge, side="left") for edge in covered)
    return _runs(first, end)


def _runs(first: Integers, end: Integers) -> Integers:
    """Concatenated ranges [first, end)."""
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
    most = _most_open(ascending(start), ascending(end), first)
    return Depth(most, float(inside.sum()) / (last - first))


def _most_open(starts: Integers, ends: Integers, first: int) -> int:
    """The most intervals open at a start at or after `first`; `starts` and `ends` ascend."""
    if coverage.is_available():
        return coverage.most_open(starts, ends, first)
    late_starts = starts[np.searchsorted(starts, first) :]
    # Of intervals that start together, the last one counts them all.
    begun = np.arange(len(starts) - len(late_starts) + 1, len(starts) + 1)
    return int((begun - np.searchsorted(ends, late_starts, side="right")).max())
