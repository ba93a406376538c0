"""Nesting of intervals on many lanes: parents, ancestors, and the innermost one at a time.

Ranges of one thread nest like calls on a stack, so the number open and the last one started give
the innermost one without walking a stack. Ranges that overlap without nesting (start/end
ranges, two NVTX domains on one thread) are rare; the tracks that hold some are walked.
"""

from __future__ import annotations

from ctypes import c_int64
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.compiled import library
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, picked, row_numbers


@record
class Nesting:
    """Intervals sorted by (track, start, −end), none empty; one row per interval."""

    track: Array
    start: Integers
    end: Integers
    parent: RowNumbers
    """Row of the innermost interval that contains this one, −1 where none does."""
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
    """Parents of intervals sorted by (track, start, −end), none of them empty."""
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    parent = np.empty(len(start), np.int32)
    bounds = Nesting(track, start, end, parent, frozenset()).bounds
    tracks = len(bounds) - 1
    crossing = np.zeros(tracks, bool)
    library.call("traceview_nest", start, end, bounds, tracks, parent, crossing)
    return Nesting(track, start, end, parent, frozenset(np.flatnonzero(crossing).tolist()))


def depths(parent: RowNumbers) -> RowNumbers:
    """Number of ancestors of each row."""
    depth = np.empty(len(parent), np.int32)
    library.call("traceview_depths", parent, len(parent), depth)
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


_MOST_TRACKS = 2**15


class Key:
    """Keys of (track, time) pairs in one int64, which sort by track and then by time.

    Where times span too much for that, keys keep only the order relative to the times given to the
    constructor.
    """

    def __init__(self, track: Array, *times: Integers) -> None:
        self._least = min(int(each.min()) for each in times) - 1
        self._most = max(int(each.max()) for each in times) + 1
        self._width = self._most - self._least + 1
        self._known: Integers | None = None
        if (max(int(track.max()), _MOST_TRACKS) + 2) * self._width >= 2**63:
            # Times span too much for 64 bits, as in damaged traces: number the distinct times.
            self._known = groups.different(np.concatenate(times))
            self._width = 2 * len(self._known) + 1

    def of(self, track: Array, time: Integers) -> Integers:
        if self._known is None:
            place = np.clip(time, self._least, self._most)
            place -= self._least
        else:
            place = np.searchsorted(self._known, time, side="left")
            place = place + np.searchsorted(self._known, time, side="right")
        result: Integers = np.multiply(track, self._width, dtype=np.int64)
        result += place
        return result

    def time(self, track: Array | int, key: Integers) -> Integers:
        """The times of keys on one or several tracks; all were given to the constructor."""
        place = key - track * self._width
        return place + self._least if self._known is None else self._known[place // 2]


class LanePosition(NamedTuple):
    """Position of times among the intervals of their lanes."""

    begun: Integers
    """Number of intervals, over all lanes, that begin up to the time; the last may be open then."""
    left: Integers
    """Time left of that last interval, 0 if it is over or on another lane."""


@record
class Lanes:
    """Disjoint intervals of numbered lanes, in order of lane and start."""

    lane: Integers
    start: Integers
    end: Integers

    @classmethod
    def of(cls, lane: Array, start: Integers, end: Integers) -> Lanes:
        """Intervals that are disjoint within their lanes, in any order."""
        rows = in_order(lane, start)
        lane = picked(lane, rows).astype(np.int64)
        return cls(lane, picked(start, rows), picked(end, rows))

    @classmethod
    def union(cls, lane: Array, start: Integers, end: Integers) -> Lanes:
        """The union of intervals on each lane; those on a lane below 0 are left out.

        Intervals in order of start are not copied.
        """
        if not groups.in_order(start):
            rows = np.argsort(start, kind="stable")
            lane, start, end = (picked(each, rows) for each in (lane, start, end))
        lanes = int(lane.max(initial=-1)) + 1
        covered, count = intervals.union_on_lanes(lane, start, end, lanes)
        return cls(np.repeat(np.arange(lanes), count), *covered)

    def locate(self, lane: Integers, time: Integers) -> LanePosition:
        """Position of each (lane, time) among the intervals."""
        if not len(self.start):
            return LanePosition(np.zeros(len(time), np.int64), np.zeros(len(time), np.int64))
        begun = intervals.places(self._starts, self._key.of(lane, time), side="right")
        last = np.maximum(begun - 1, 0)
        on_lane = (begun > 0) & (self.lane[last] == lane)
        return LanePosition(begun, np.where(on_lane, np.maximum(self.end[last] - time, 0), 0))

    def coverage(self, counted: Mask | None = None) -> LaneCoverage:
        """Time covered by the intervals, all or the counted ones, up to each of them."""
        length = self.end - self.start
        if counted is not None:
            length[~counted] = 0
        return LaneCoverage(np.concatenate(([0], np.cumsum(length))), counted)

    def overlap(self, lane: Integers, start: Integers, end: Integers) -> Integers:
        """Time of each [start, end) that the intervals of its lane cover."""
        return self._all.between(self.locate(lane, start), self.locate(lane, end))

    @cached_property
    def _all(self) -> LaneCoverage:
        return self.coverage()

    @cached_property
    def _key(self) -> Key:
        return Key(self.lane, self.start, self.end)

    @cached_property
    def _starts(self) -> Integers:
        return self._key.of(self.lane, self.start)


@record
class LaneCoverage:
    """Time covered by the intervals of lanes, all or some of them."""

    before: Integers
    """Time covered by the intervals before each."""
    counted: Mask | None

    def between(self, first: LanePosition, last: LanePosition) -> Integers:
        """Time covered from one position on a lane to a later one on it."""
        result: Integers = self.before[last.begun] - self.before[first.begun]
        result += self._left(first)
        result -= self._left(last)
        return result

    def _left(self, position: LanePosition) -> Integers:
        if self.counted is None or not len(self.counted):
            return position.left
        return np.where(self.counted[np.maximum(position.begun - 1, 0)], position.left, 0)


def in_order(lane: Array, start: Integers) -> Integers:
    """Rows in order of lane and start."""
    if groups.in_order(start):
        return np.arange(len(start)) if groups.in_order(lane) else groups.order_of(lane)
    rows = np.argsort(start, kind="stable")
    lane = picked(lane, rows)
    return rows if groups.in_order(lane) else picked(rows, groups.order_of(lane))


def nearest(value: RowNumbers, parent: RowNumbers, rows: Array) -> RowNumbers:
    """The value of each of the rows, or of its nearest ancestor if its own is negative; else −1."""
    result = np.empty(len(rows), np.int32)
    library.call("traceview_nearest", value, parent, rows, len(rows), result)
    return result


def inherited(value: RowNumbers, parent: RowNumbers) -> RowNumbers:
    """As `nearest` for all rows, in time that does not grow with the depth of the tree."""
    result = np.empty(len(value), np.int32)
    library.call("traceview_inherited", value, parent, len(value), result)
    return result


def with_ancestors(parent: RowNumbers, mine: Mask) -> Mask:
    """True for the rows of the mask `mine` and all their ancestors."""
    rows, marked = row_numbers(np.flatnonzero(mine)), np.zeros(len(mine), bool)
    library.call("traceview_mark_around", parent, rows, len(rows), marked)
    return marked
