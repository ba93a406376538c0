"""Tracks: rows of the timeline that follow each other in time without overlap."""

from __future__ import annotations

from typing import Literal

import numpy as np

from traceview import groups
from traceview.compiled import coverage
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, constant, picked, row_numbers

MOST_TRACKS = 32
"""The most tracks over which overlapping rows are spread."""

Content = Literal["operations", "gaps", "ranges", "calls", "python", "steps", "phases"]


@record
class Track(Timed):
    """Rows in order of start, none of which overlap.

    `name` is a number of RowNames. `source` is the row that is shown, of the fact that `content`
    names: operations, api_calls, every_gap, the range tree or steps. `bytes` is the amount of a
    copy or memset, else 0.
    """

    content: Content
    start_ns: Integers
    end_ns: Integers
    name: RowNumbers
    source: RowNumbers
    bytes: Integers

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def of(
        cls,
        content: Content,
        start: Integers,
        end: Integers,
        name: RowNumbers,
        source: Array,
        amount: Integers | None = None,
    ) -> Track:
        amount = constant(0, len(start), np.int64) if amount is None else amount
        return cls(content, start, end, name, row_numbers(source), amount)

    def take(self, rows: Array | slice) -> Track:
        return Track(
            self.content,
            picked(self.start_ns, rows),
            picked(self.end_ns, rows),
            picked(self.name, rows),
            picked(self.source, rows),
            picked(self.bytes, rows),
        )


def spread(rows: Track) -> tuple[Track, ...]:
    """Spread rows, in any order, over as few tracks as they need: each to the first free one."""
    ordered, overlapping = _overlapping(rows.start_ns, rows.end_ns)
    if not ordered:
        rows = rows.take(np.lexsort((-rows.end_ns, rows.start_ns)))
        _, overlapping = _overlapping(rows.start_ns, rows.end_ns)
    tracks: list[Track] = []
    while len(overlapping) and len(tracks) < MOST_TRACKS - 1:
        on_track = np.ones(len(rows), bool)
        on_track[overlapping] = first_track(rows.start_ns[overlapping], rows.end_ns[overlapping])
        tracks.append(rows.take(np.flatnonzero(on_track)))
        rows = rows.take(np.flatnonzero(~on_track))
        _, overlapping = _overlapping(rows.start_ns, rows.end_ns)
    return (*tracks, rows) if len(rows) else tuple(tracks)


def _overlapping(start: Integers, end: Integers) -> tuple[bool, Integers]:
    """Whether intervals are in order of start, longest first, and the rows that overlap another.

    The rows mean nothing for intervals that are not in order.
    """
    if coverage.is_available():
        return coverage.overlapping(start, end)
    free = start[1:] >= np.maximum.accumulate(end)[:-1]
    overlaps = ~(np.append(True, free) & np.append(free, True))[: len(start)]
    return groups.in_order(start, -end), np.flatnonzero(overlaps)


def first_track(start: Integers, end: Integers) -> Mask:
    """True for the intervals of a track that, when free, takes the next one to start.

    `start` ascends. Each interval taken decides the next one. Instead of walking that chain, its
    jumps are doubled: what is reached after 2^k intervals, for all of them at once.
    """
    count = len(start)
    after = np.searchsorted(start, np.maximum(end, start), side="left")
    jump = np.append(np.maximum(after, np.arange(1, count + 1)), count).astype(np.int32)
    jumps = [jump]
    while (jump[0] < count) and len(jumps) < count.bit_length():
        jump = jump[jump]
        jumps.append(jump)
    taken = np.zeros(count + 1, bool)
    reached = np.zeros(1, np.int32)
    for jump in reversed(jumps):
        reached = np.concatenate((reached, jump[reached]))
        reached = reached[reached < count]
    taken[reached] = True
    return taken[:count]
