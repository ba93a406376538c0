"""Intervals on many lanes (threads, series of steps, GPUs), looked up in one pass over all."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.records import record
from traceview.tables import Array, Integers, Mask, picked

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
