"""Tracks: rows of the timeline that follow each other in time without overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traceview.intervals import Timed
from traceview.tables import Array, Integers, RowNumbers, row_numbers

MOST_TRACKS = 32
"""The most tracks that rows which overlap are spread over."""

Content = Literal["operations", "gaps", "ranges", "calls", "python", "steps", "phases"]


@dataclass(frozen=True)
class Track(Timed):
    """Rows in order of start, none of which overlap.

    `name` is a number of Names, `source` the row in operations, api_calls, every_gap, the range
    tree or steps that it shows, by `content`. `bytes` is the amount of a copy or memset, else 0.
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
        amount = np.zeros(len(start), np.int64) if amount is None else amount
        return cls(content, start, end, name, row_numbers(source), amount)

    def take(self, rows: Array) -> Track:
        return Track(
            self.content,
            self.start_ns[rows],
            self.end_ns[rows],
            self.name[rows],
            self.source[rows],
            self.bytes[rows],
        )


def spread(rows: Track) -> tuple[Track, ...]:
    """Rows in any order on as few tracks as they need: each goes to the first that is free."""
    order = np.lexsort((-rows.end_ns, rows.start_ns))
    rows = rows if (order[1:] > order[:-1]).all() else rows.take(order)
    return tuple(_spread(rows))


def _spread(rows: Track) -> Iterator[Track]:
    for _ in range(MOST_TRACKS - 1):
        if not len(rows) or (rows.start_ns[1:] >= rows.end_ns[:-1]).all():
            break
        on_track = first_track(rows.start_ns, rows.end_ns)
        yield rows.take(np.flatnonzero(on_track))
        rows = rows.take(np.flatnonzero(~on_track))
    if len(rows):
        yield rows


def first_track(start: Integers, end: Integers) -> Array:
    """True for the rows that a track takes which always takes the next row to start.

    Each row taken decides the next one. Instead of walking that chain, its jumps are doubled: what
    is reached after 2^k rows, for all rows at once.
    """
    count = len(start)
    after = np.searchsorted(start, np.maximum(end, start), side="left")
    after = np.append(np.maximum(after, np.arange(1, count + 1)), count)
    jumps = [after]
    while len(jumps) < max(count, 1).bit_length():
        jumps.append(jumps[-1][jumps[-1]])
    reached = np.zeros(1, np.int64)
    for jump in reversed(jumps):
        reached = np.concatenate((reached, jump[reached]))
    taken = np.zeros(count + 1, bool)
    taken[reached] = True
    return taken[:count]
