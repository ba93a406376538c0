"""Reduction of a timeline to fit a page: single rows where there is room, elsewhere sums of many.

A page holds a few million rows. Of a longer recording, the windows with most rows are kept whole;
between them each run of rows becomes one, with their busy time and the name of the longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from traceview import groups, intervals
from traceview.intervals import Intervals, Timed
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers, constant
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

    `first` is the first track row of each leaf, which ends before that of the next leaf; a slice
    where each row is a leaf. `name` is that of its longest row, `busy_ns` the total duration of its
    rows.
    """

    track: Track
    first: Integers | slice
    start_ns: Integers
    end_ns: Integers
    name: RowNumbers
    busy_ns: Integers

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def summed(self) -> bool:
        """Whether some leaves stand for several rows."""
        return len(self) < len(self.track)

    @property
    def count(self) -> Integers:
        """Number of track rows in each leaf."""
        if isinstance(self.first, slice):
            return constant(1, len(self), np.int64)
        return np.diff(np.append(self.first, len(self.track)))

    def sums(self, values: Integers) -> Integers:
        """The sum of `values`, one per track row, over each leaf."""
        if isinstance(self.first, slice):
            return values
        sums: Integers = np.add.reduceat(values, self.first)
        return sums

    def busy_by_class(self, classes: Array) -> dict[int, Integers]:
        """Duration of the rows of each leaf by class; `classes` has the class of each name."""
        same = self.track.class_of_all(classes)
        if same is not None:
            return {same: self.busy_ns}
        of_row, duration = classes[self.track.name], self.track.duration_ns
        every = groups.different(of_row).tolist()
        return {kind: self.sums(np.where(of_row == kind, duration, 0)) for kind in every}


def leaves(timeline: Timeline) -> list[Leaves]:
    """The leaves of each track of a timeline, in the order of its tracks."""
    tracks = list(timeline.tracks)
    work = within([track for track in tracks if track.content in _WORK], MOST_WORK)
    other = within([track for track in tracks if track.content not in _WORK], MOST_OTHER)
    of_track = {id(leaves.track): leaves for leaves in (*work, *other)}
    return [of_track[id(track)] for track in tracks]


def within(tracks: Sequence[Track], most: int) -> list[Leaves]:
    """The leaves of tracks, with about `most` single rows: short tracks whole, others in part."""
    if sum(map(len, tracks)) <= most:
        return [single(track) for track in tracks]
    limit = _longest_whole(list(map(len, tracks)), most // 2)
    long = [track for track in tracks if len(track) > limit]
    short = sum(len(track) for track in tracks if len(track) <= limit)
    windows = densest(long, most - short)
    rows = sum(map(len, long))
    run = max(_LEAST_RUN, -(-rows // _MOST_RUNS))
    return [
        single(track) if len(track) <= limit else in_runs(track, windows, run) for track in tracks
    ]


def _longest_whole(lengths: Iterable[int], most: int) -> int:
    """The length up to which tracks stay whole, so that they have at most `most` rows together."""
    total, longest = 0, 0
    for length in sorted(lengths):
        total += length
        if total > most:
            break
        longest = length
    return longest


def densest(tracks: Sequence[Track], most: int) -> Intervals:
    """The windows with most rows, up to `most` rows in all, of _WINDOWS equal windows."""
    first = min(int(track.take(slice(0, 1)).start_ns[0]) for track in tracks)
    last = max(int(track.take(slice(len(track) - 1, None)).start_ns[0]) for track in tracks) + 1
    edges = np.linspace(first, last, _WINDOWS + 1).astype(np.int64)
    rows = sum(np.diff(track.starting_before(edges)) for track in tracks)
    order = np.argsort(-np.asarray(rows), kind="stable")
    kept = np.sort(order[: int(np.searchsorted(np.cumsum(np.asarray(rows)[order]), most, "right"))])
    return intervals.union(edges[kept], edges[kept + 1])


def single(track: Track) -> Leaves:
    """The leaves of a track, one per row."""
    start, end = track.start_ns, track.end_ns
    return Leaves(track, slice(None), start, end, track.name, end - start)


def in_runs(track: Track, whole: Intervals, run: int) -> Leaves:
    """The leaves of a track: one per row that starts within `whole`, a union, and one per run of
    at most `run` others."""
    edges = track.starting_before(np.stack((whole.start, whole.end), axis=1).ravel())
    stretches = pairwise([0, *edges.tolist(), len(track)])
    first = np.concatenate(
        [np.arange(a, b, (run, 1)[n % 2]) for n, (a, b) in enumerate(stretches) if a < b]
    )
    start, end = track.start_ns, track.end_ns
    duration = end - start
    return Leaves(
        track,
        first,
        start[first],
        np.maximum.reduceat(end, first),
        track.take(_longest(duration, first)).name,
        np.add.reduceat(duration, first),
    )


def _longest(duration: Integers, first: Integers) -> Integers:
    """The row number of the longest row of each leaf."""
    bits = max(len(duration), 1).bit_length()
    key = np.minimum(duration, 1 << (62 - bits))
    key <<= bits
    key |= np.arange(len(duration), dtype=np.int32)
    longest: Integers = np.maximum.reduceat(key, first) & ((1 << bits) - 1)
    return longest
