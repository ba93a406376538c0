"""Nesting of intervals on several tracks: parent, depth, and the innermost one at a time.

Ranges of one thread nest like calls on a stack, so the number open and the last one started give
the innermost one without walking a stack. Ranges that overlap without nesting (start/end
ranges, two NVTX domains on one thread) are rare; the tracks that hold some are walked.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64
from functools import cached_property
from itertools import pairwise

import numpy as np

from traceview import groups, intervals
from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.facts.ranges.lanes import Key
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers, row_numbers


@record
class Nesting:
    """Intervals sorted by (track, start, −end), none empty; one row per interval."""

    track: Array
    start: Integers
    end: Integers
    parent: RowNumbers
    """Row of the innermost interval that contains this one, −1 where none does."""
    depth: RowNumbers
    walked: frozenset[int]
    """Tracks on which some intervals overlap without nesting."""

    @property
    def own_ns(self) -> Integers:
        """Time of each interval outside the intervals inside it."""
        if library.has("traceview_own_time"):
            return self._own_ns_compiled()
        # The parent −1, for none, is the last.
        own: Integers = np.append(self.end - self.start, 0)
        np.subtract.at(own, self.parent, self.end - self.start)
        # Intervals that overlap without nesting share time.
        np.maximum(own, 0, out=own)
        return own[:-1]

    def _own_ns_compiled(self) -> Integers:
        start, end = (np.ascontiguousarray(each, np.int64) for each in (self.start, self.end))
        own = np.empty(len(start), np.int64)
        library.call(
            "traceview_own_time",
            pointer(start),
            pointer(end),
            pointer(self.parent),
            c_int64(len(start)),
            pointer(own),
        )
        return own

    def sums(self, number: RowNumbers, size: int) -> tuple[Integers, Integers]:
        """Time of the intervals of each number below `size`, and their time outside inner ones."""
        if not library.has("traceview_sum_nested"):
            duration = self.end - self.start
            return groups.added(number, duration, size), groups.added(number, self.own_ns, size)
        start, end = (np.ascontiguousarray(each, np.int64) for each in (self.start, self.end))
        number, room = np.ascontiguousarray(number, np.int32), np.empty(len(start), np.int64)
        total, own = np.zeros(size, np.int64), np.zeros(size, np.int64)
        library.call(
            "traceview_sum_nested",
            pointer(start),
            pointer(end),
            pointer(self.parent),
            pointer(number),
            c_int64(len(start)),
            pointer(room),
            pointer(total),
            pointer(own),
        )
        return total, own

    def innermost(self, track: Array, time: Integers) -> RowNumbers:
        """For each (track, time), the row of the latest-started interval open then, or −1."""
        find = _innermost_compiled if library.has("traceview_innermost") else _innermost
        result = find(self, track, time)
        for number in self.walked:
            of_track = np.flatnonzero(track == number)
            own = np.flatnonzero(self.track == number)
            open_ = _open_at(self.start[own], self.end[own], time[of_track])
            result[of_track] = np.where(open_ >= 0, own[np.maximum(open_, 0)], -1)
        return result

    def edges(self, track: int, window: Intervals) -> Integers:
        """Times within `window`, a union, at which intervals of a track start or end."""
        if track + 1 >= len(self.bounds):
            return np.zeros(0, np.int64)
        own = slice(*self.bounds[track : track + 2].tolist())
        start, end = self.start[own], self._ends[track]
        begun, ended = (intervals.rows_inside(window, time) for time in (start, end))
        return np.concatenate([start[begun], end[ended]])

    @cached_property
    def bounds(self) -> Integers:
        """The first row of each track, including empty ones, and the end of the last track."""
        tracks = int(self.track[-1]) + 1 if len(self.track) else 0
        # Same dtype as the tracks, which searchsorted would otherwise convert.
        numbers = np.arange(tracks + 1, dtype=self.track.dtype)
        return np.searchsorted(self.track, numbers).astype(np.int64)

    @cached_property
    def _ends(self) -> list[Integers]:
        """The ends of each track, ascending."""
        bounds = pairwise(self.bounds.tolist())
        return [intervals.ascending(self.end[first:last]) for first, last in bounds]


def _innermost(nesting: Nesting, track: Array, time: Integers) -> RowNumbers:
    if not len(nesting.start):
        return np.full(len(time), -1, np.int32)
    key = Key(nesting.track, nesting.start, nesting.end)
    starts = key.of(nesting.track, nesting.start)
    result = row_numbers(np.searchsorted(starts, key.of(track, time), side="right") - 1)
    result[nesting.track[result] != track] = -1
    # The open interval is the one that started last or one of its ancestors.
    ended = np.flatnonzero((result >= 0) & (nesting.end[result] <= time))
    while len(ended):
        row = nesting.parent[result[ended]]
        result[ended] = row
        ended = ended[(row >= 0) & (nesting.end[row] <= time[ended])]
    return result


def _innermost_compiled(nesting: Nesting, track: Array, time: Integers) -> RowNumbers:
    bounds, result = nesting.bounds, np.empty(len(time), np.int32)
    places = np.empty(len(bounds), np.int64)
    track, time = np.ascontiguousarray(track, np.int32), np.ascontiguousarray(time, np.int64)
    library.call(
        "traceview_innermost",
        pointer(nesting.start),
        pointer(nesting.end),
        pointer(nesting.parent),
        pointer(bounds),
        c_int64(len(bounds) - 1),
        pointer(places),
        pointer(track),
        pointer(time),
        c_int64(len(time)),
        pointer(result),
    )
    return result


def in_nesting_order(track: Array, start: Integers, end: Integers) -> bool:
    """Whether intervals are sorted by (track, start, −end)."""
    if library.has("traceview_in_nesting_order"):
        track = np.ascontiguousarray(track, np.int32)
        start, end = (np.ascontiguousarray(each, np.int64) for each in (start, end))
        result, rows = c_int64(), c_int64(len(start))
        of = (pointer(track), pointer(start), pointer(end), rows, ctypes.byref(result))
        library.call("traceview_in_nesting_order", *of)
        return bool(result.value)
    return all(
        groups.in_order(track[part], start[part], -end[part])
        for part in groups.overlapping_parts(len(start))
    )


def nest(track: Array, start: Integers, end: Integers) -> Nesting:
    """Parents and depths of intervals sorted by (track, start, −end), none of them empty."""
    if library.has("traceview_nest"):
        return _nest_compiled(track, start, end)
    rows = len(start)
    parent = np.full(rows, -1, np.int32)
    if not rows:
        return Nesting(track, start, end, parent, parent.copy(), frozenset())
    key = Key(track, start, end)
    ended = np.searchsorted(np.sort(key.of(track, end)), key.of(track, start), side="right")
    depth = row_numbers(np.arange(rows) - ended)
    for level in range(1, int(depth.max()) + 1):
        own = np.flatnonzero(depth == level)
        above = np.flatnonzero(depth == level - 1)
        parent[own] = above[np.searchsorted(above, own) - 1]
    crossing = (parent >= 0) & (end > end[parent])
    walked = frozenset(int(number) for number in groups.different(track[crossing]))
    for number in walked:
        own = np.flatnonzero(track == number)
        around = _containing(end[own])
        parent[own] = np.where(around >= 0, own[np.maximum(around, 0)], -1)
    return Nesting(track, start, end, parent, depths(parent) if walked else depth, walked)


def _nest_compiled(track: Array, start: Integers, end: Integers) -> Nesting:
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    parent, depth = np.empty(len(start), np.int32), np.empty(len(start), np.int32)
    bounds = Nesting(track, start, end, parent, depth, frozenset()).bounds
    crossing = np.zeros(len(bounds) - 1, np.uint8)
    library.call(
        "traceview_nest",
        pointer(start),
        pointer(end),
        pointer(bounds),
        c_int64(len(crossing)),
        pointer(parent),
        pointer(depth),
        pointer(crossing),
    )
    walked = frozenset(np.flatnonzero(crossing).tolist())
    return Nesting(track, start, end, parent, depth, walked)


def depths(parent: RowNumbers) -> RowNumbers:
    """Number of ancestors of each row. A parent comes before its children."""
    depth = (parent >= 0).astype(np.int32)
    above, rows = parent.copy(), np.flatnonzero(parent >= 0)
    # Each turn doubles how far `above` is: a chain as long as the table takes few.
    while len(rows):
        farther = above[rows]
        depth[rows] += depth[farther]
        above[rows] = above[farther]
        rows = rows[above[rows] >= 0]
    return depth


def _open_at(start: Integers, end: Integers, time: Integers) -> Integers:
    """Row of the latest-started interval open at each time, or −1."""
    result = np.full(len(time), -1, np.int64)
    starts, ends = start.tolist(), end.tolist()
    begun: list[int] = []
    following = 0
    for place in np.argsort(time, kind="stable").tolist():
        now = int(time[place])
        while following < len(starts) and starts[following] <= now:
            begun.append(following)
            following += 1
        # An interval that ended below an open one stays until it is on top of the stack.
        while begun and ends[begun[-1]] <= now:
            begun.pop()
        if begun:
            result[place] = begun[-1]
    return result


def _containing(end: Integers) -> Integers:
    """Row of the latest-started interval that contains each interval, or −1.

    An interval that merely overlaps another is its sibling: otherwise ranges that overlap in a
    chain would nest without end.
    """
    parent = np.full(len(end), -1, np.int64)
    around: list[tuple[int, int]] = []
    for row, last in enumerate(end.tolist()):
        while around and around[-1][0] < last:
            around.pop()
        if around:
            parent[row] = around[-1][1]
        around.append((last, row))
    return parent
