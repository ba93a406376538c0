"""Nesting of intervals on several tracks: parent, depth, and the innermost one at a time.

Ranges of one thread nest like calls on a stack, so the number open and the last one started give
the innermost one without walking a stack. Ranges that overlap without nesting (start/end
ranges, two NVTX domains on one thread) are rare; the tracks that hold some are walked.
"""

from __future__ import annotations

from ctypes import c_int64
from functools import cached_property
from itertools import pairwise

import numpy as np

from traceview import intervals
from traceview.compiled import library
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers


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
        own = np.empty(len(self.start), np.int64)
        given = (self.start, self.end, self.parent, len(own), own)
        library.call("traceview_own_time", *given)
        return own

    def sums(self, number: RowNumbers, size: int) -> tuple[Integers, Integers]:
        """Time of the intervals of each number below `size`, and their time outside inner ones."""
        rows, total, own = len(self.start), np.zeros(size, np.int64), np.zeros(size, np.int64)
        room = np.empty(rows, np.int64)
        given = (self.start, self.end, self.parent, number, rows, room, total, own)
        library.call("traceview_sum_nested", *given)
        return total, own

    def innermost(self, track: Array, time: Integers) -> RowNumbers:
        """For each (track, time), the row of the latest-started interval open then, or −1."""
        tracks, result = len(self.bounds) - 1, np.empty(len(time), np.int32)
        begun = np.empty(tracks, np.int64)
        given = (self.start, self.end, self.parent, self.bounds, tracks, begun)
        library.call("traceview_innermost", *given, track, time, len(time), result)
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


def in_nesting_order(track: Array, start: Integers, end: Integers) -> bool:
    """Whether intervals are sorted by (track, start, −end)."""
    result = c_int64()
    library.call("traceview_in_nesting_order", track, start, end, len(start), result)
    return bool(result.value)


def nest(track: Array, start: Integers, end: Integers) -> Nesting:
    """Parents and depths of intervals sorted by (track, start, −end), none of them empty."""
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    parent, depth = np.empty(len(start), np.int32), np.empty(len(start), np.int32)
    bounds = Nesting(track, start, end, parent, depth, frozenset()).bounds
    tracks = len(bounds) - 1
    crossing = np.zeros(tracks, bool)
    library.call("traceview_nest", start, end, bounds, tracks, parent, depth, crossing)
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
