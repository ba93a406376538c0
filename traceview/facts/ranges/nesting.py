"""Nesting of intervals on several tracks: parent, depth, and the innermost one at a time.

Ranges of one thread nest like calls on a stack, so the number open and the last one started give
the innermost one without walking a stack. Ranges that overlap without nesting (start/end
ranges, two NVTX domains on one thread) are rare; the tracks that hold some are walked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceview import groups, intervals
from traceview.facts.ranges.lanes import Key
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, RowNumbers, row_numbers


@dataclass(frozen=True)
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
        own: Integers = self.end - self.start
        for part in groups.parts(len(own)):
            inner = np.flatnonzero(self.parent[part] >= 0) + part.start
            np.subtract.at(own, self.parent[inner], self.end[inner] - self.start[inner])
        # Intervals that overlap without nesting share time.
        return np.maximum(own, 0, out=own)

    def innermost(self, track: Array, time: Integers) -> RowNumbers:
        """For each (track, time), the row of the latest-started interval open then, or −1."""
        result = self._by_start(track, time)
        for number in self.walked:
            asked = np.flatnonzero(track == number)
            own = np.flatnonzero(self.track == number)
            open_ = _open_at(self.start[own], self.end[own], time[asked])
            result[asked] = np.where(open_ >= 0, own[np.maximum(open_, 0)], -1)
        return result

    def edges(self, track: int, window: Intervals) -> Integers:
        """Times within the windows (a union) at which intervals of a track start or end."""
        if not len(self.start):
            return np.zeros(0, np.int64)
        key = self._key
        number = np.full(len(window.start), track)
        asked = Intervals(key.of(number, window.start), key.of(number, window.end))
        begun = self.start[intervals.rows_inside(asked, self._starts)]
        ended = key.time(track, self._ends[intervals.rows_inside(asked, self._ends)])
        return np.concatenate([begun, ended])

    def _by_start(self, track: Array, time: Integers) -> RowNumbers:
        if not len(self.start):
            return np.full(len(time), -1, np.int32)
        asked = self._key.of(track, time)
        result = row_numbers(np.searchsorted(self._starts, asked, side="right") - 1)
        result[self.track[result] != track] = -1
        # What is open is the interval that started last, or lies around it.
        ended = np.flatnonzero((result >= 0) & (self.end[result] <= time))
        while len(ended):
            row = self.parent[result[ended]]
            result[ended] = row
            ended = ended[(row >= 0) & (self.end[row] <= time[ended])]
        return result

    @cached_property
    def _key(self) -> Key:
        return Key(self.track, self.start, self.end)

    @cached_property
    def _starts(self) -> Integers:
        return self._key.of(self.track, self.start)

    @cached_property
    def _ends(self) -> Integers:
        return np.sort(self._key.of(self.track, self.end))


def nest(track: Array, start: Integers, end: Integers) -> Nesting:
    """Parents and depths of intervals sorted by (track, start, −end), none of them empty."""
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


def depths(parent: RowNumbers) -> RowNumbers:
    """Number of ancestors of each row. A parent comes before its children."""
    depth = np.zeros(len(parent), np.int32)
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    while len(rows):
        depth[rows] += 1
        above = parent[above]
        inside = np.flatnonzero(above >= 0)
        rows, above = rows[inside], above[inside]
    return depth


def _open_at(start: Integers, end: Integers, time: Integers) -> Integers:
    """The latest-started of the intervals open at each time, or −1."""
    result = np.full(len(time), -1, np.int64)
    starts, ends = start.tolist(), end.tolist()
    begun: list[int] = []
    following = 0
    for place in np.argsort(time, kind="stable").tolist():
        now = int(time[place])
        while following < len(starts) and starts[following] <= now:
            begun.append(following)
            following += 1
        # One that has ended below an open one stays until it comes to the top.
        while begun and ends[begun[-1]] <= now:
            begun.pop()
        if begun:
            result[place] = begun[-1]
    return result


def _containing(end: Integers) -> Integers:
    """The latest-started interval that contains each one, or −1: the last before it to end later.

    One that merely overlaps is a sibling: otherwise ranges that overlap in a chain would nest
    without end.
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
