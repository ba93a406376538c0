"""What of a timeline fits a page: single rows where there is room, and sums of many elsewhere.

A page holds a few million rows. Of a longer recording, the windows with most rows are kept whole;
between them runs of rows become one: how long they were busy, and the name of the longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from traceview import groups, intervals
from traceview.intervals import Intervals, Timed
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, constant
from traceview.timeline.timeline import Timeline
from traceview.timeline.tracks import Track

MOST_WORK, MOST_OTHER = 2_500_000, 300_000
"""Rows of GPU work and CUDA calls, and of everything else, that a page gets singly."""
_WORK = ("operations", "calls")
_WINDOWS = 512
_LEAST_RUN, _MOST_RUNS = 16, 50_000


@record
class Leaves(Timed):
    """Rows of a track, singly or in runs: one row per leaf, in order of time.

    A leaf stands for the rows of the track from row `first` on; a slice where each row is a leaf.
    `name` is that of the longest.
    """

    track: Track
    first: Integers | slice
    start_ns: Integers
    end_ns: Integers
    name: RowNumbers

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def summed(self) -> bool:
        """Whether some leaves stand for several rows."""
        return len(self) < len(self.track)

    @property
    def count(self) -> Integers:
        """Rows of each leaf."""
        if isinstance(self.first, slice):
            return constant(1, len(self), np.int64)
        return np.diff(np.append(self.first, len(self.track)))

    @property
    def busy_ns(self) -> Integers:
        """The time of the rows of each leaf."""
        return self.sums(self.track.duration_ns)

    def sums(self, values: Integers) -> Integers:
        """The sum over the rows of each leaf."""
        if isinstance(self.first, slice):
            return values
        sums: Integers = np.add.reduceat(values, self.first)
        return sums

    def busy_by_class(self, classes: Array) -> dict[int, Integers]:
        """Time of the rows of each leaf by class; `classes` has the class of each name."""
        of_row, duration = classes[self.track.name], self.track.duration_ns
        every = groups.different(of_row).tolist()
        if len(every) == 1:
            return {every[0]: self.busy_ns}
        return {kind: self.sums(np.where(of_row == kind, duration, 0)) for kind in every}


def leaves(timeline: Timeline) -> list[Leaves]:
    """The leaves of each track of a timeline, in its order."""
    tracks = list(timeline.tracks)
    result: dict[int, Leaves] = {}
    for part, most in (
        ([t for t in tracks if t.content in _WORK], MOST_WORK),
        ([t for t in tracks if t.content not in _WORK], MOST_OTHER),
    ):
        for track, made in zip(part, within(part, most), strict=True):
            result[id(track)] = made
    return [result[id(track)] for track in tracks]


def within(tracks: Sequence[Track], most: int) -> list[Leaves]:
    """The leaves of tracks, with about `most` single rows: short tracks whole, others in part."""
    if sum(map(len, tracks)) <= most:
        return [single(track) for track in tracks]
    limit = _longest_whole(list(map(len, tracks)), most // 2)
    long = [track for track in tracks if len(track) > limit]
    short = sum(len(track) for track in tracks if len(track) <= limit)
    windows = densest([track.start_ns for track in long], most - short)
    rows = sum(map(len, long))
    run = max(_LEAST_RUN, -(-rows // _MOST_RUNS))
    return [
        single(track)
        if len(track) <= limit
        else in_runs(track, intervals.inside(windows, track.start_ns), run)
        for track in tracks
    ]


def _longest_whole(lengths: Iterable[int], most: int) -> int:
    """The length up to which tracks stay whole, so that these have at most so many rows."""
    total, longest = 0, 0
    for length in sorted(lengths):
        total += length
        if total > most:
            break
        longest = length
    return longest


def densest(starts: Sequence[Integers], most: int) -> Intervals:
    """The windows with most rows, of equal ones that divide the time, up to `most` rows in all."""
    first = min(int(start[0]) for start in starts)
    last = max(int(start[-1]) for start in starts) + 1
    edges = np.linspace(first, last, _WINDOWS + 1).astype(np.int64)
    rows = sum(np.diff(np.searchsorted(start, edges)) for start in starts)
    order = np.argsort(-np.asarray(rows), kind="stable")
    kept = np.sort(order[: int(np.searchsorted(np.cumsum(np.asarray(rows)[order]), most, "right"))])
    return intervals.union(edges[kept], edges[kept + 1])


def single(track: Track) -> Leaves:
    """A leaf per row."""
    return Leaves(track, slice(None), track.start_ns, track.end_ns, track.name)


def in_runs(track: Track, whole: Mask, run: int) -> Leaves:
    """A leaf per row that is to stay whole, and per run of at most so many of the others."""
    changes = np.flatnonzero(whole[1:] != whole[:-1]) + 1
    stretches = pairwise([0, *changes.tolist(), len(track)])
    first = np.concatenate([np.arange(a, b, 1 if whole[a] else run) for a, b in stretches])
    duration = track.duration_ns
    return Leaves(
        track,
        first,
        track.start_ns[first],
        np.maximum.reduceat(track.end_ns, first),
        track.name[_longest(duration, first)],
    )


def _longest(duration: Integers, first: Integers) -> Integers:
    """The longest row of each leaf."""
    bits = max(len(duration), 1).bit_length()
    key = np.minimum(duration, 1 << (62 - bits))
    key <<= bits
    key |= np.arange(len(duration), dtype=np.int32)
    longest: Integers = np.maximum.reduceat(key, first) & ((1 << bits) - 1)
    return longest
