"""Slices of one Perfetto track: its rows must nest, because a viewer builds a tree of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.intervals import Intervals
from traceview.tables import Integers, Mask
from traceview.timeline.tracks import Track

_MOST_ROUNDS = 16


def nested(tracks: Sequence[Track]) -> tuple[list[Integers], list[Integers]]:
    """The rows of each track that nest within each other, and the rows that cross another one."""
    which = np.repeat(np.arange(len(tracks)), [len(track) for track in tracks])
    row = np.concatenate([np.arange(len(track)) for track in tracks])
    start = np.concatenate([track.start_ns for track in tracks])
    end = np.concatenate([last_ns(track) for track in tracks])
    order = np.lexsort((which, -end, start))
    left_out = np.zeros(len(order), bool)
    for _ in range(_MOST_ROUNDS):
        kept = order[~left_out[order]]
        crossed = crossing(Intervals(start[kept], end[kept]))
        if not crossed.any():
            break
        left_out[kept[crossed]] = True
    else:
        left_out[:] = True
    parts = [
        [row[(which == number) & (left_out == out)] for number in range(len(tracks))]
        for out in (False, True)
    ]
    return parts[0], parts[1]


def last_ns(track: Track) -> Integers:
    """The end of each row, at least 1 ns after its start."""
    result: Integers = np.maximum(track.end_ns, track.start_ns + 1)
    return result


def crossing(spans: Intervals) -> Mask:
    """True for intervals that end after their parent; sorted by start, then longest first.

    The depth of an interval is the number of those begun before and not ended at its start. Its
    parent, unless intervals cross, is the last one begun at the depth above.
    """
    ended = np.searchsorted(np.sort(spans.end), spans.start, side="right")
    depth = np.arange(len(spans.start)) - ended
    result = np.zeros(len(depth), bool)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        own = np.flatnonzero(depth == level)
        around = above[np.maximum(np.searchsorted(above, own) - 1, 0)]
        result[own] = spans.end[own] > spans.end[around]
        above = own
    return result


def edge_order(start: Integers, end: Integers, *, disjoint: bool) -> Integers:
    """The order of 2n edges, first all starts and then all ends, of n intervals that nest.

    At equal times ends come before starts, inner ends first and outer starts first. Disjoint
    intervals in order begin and end in turn.
    """
    rows = np.arange(len(start))
    if disjoint:
        return np.stack((rows, rows + len(start)), axis=1).reshape(-1)
    length = end - start
    rank = np.concatenate((-length, length))
    kind = np.repeat(np.array([1, 0], np.int8), len(start))
    time = np.concatenate((start, end))
    # Of equal intervals the first one is the outer one.
    place = np.concatenate((rows, -rows))
    return np.lexsort((place, rank, kind, time))
