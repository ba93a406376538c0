"""Tracks: rows of the timeline that follow each other in time without overlap."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from traceview import intervals
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, constant, picked, row_numbers

MOST_TRACKS = 32
"""The most tracks over which overlapping rows are spread."""

Content = Literal["operations", "gaps", "ranges", "calls", "python", "steps", "phases"]


@record
class _Columns:
    """Columns that tracks have rows of; `source` is None where it is the row itself."""

    start_ns: Integers
    end_ns: Integers
    name: RowNumbers
    source: RowNumbers | None
    bytes: Integers

    @cached_property
    def names(self) -> slice:
        """The numbers among which all names are."""
        return slice(int(self.name.min()), int(self.name.max()) + 1) if len(self.name) else slice(0)


@record
class Track(Timed):
    """Rows in order of start, none of which overlap.

    `name` is a number of RowNames. `source` is the row that is shown, of the fact that `content`
    names: operations, api_calls, every_gap, the range tree or steps. `bytes` is the amount of a
    copy or memset, else 0. The columns of a track of some `rows` are made each time they are read:
    those of five million ranges take 130 MB.
    """

    content: Content
    columns: _Columns
    rows: Array | None = None

    def __len__(self) -> int:
        return len(self.columns.start_ns) if self.rows is None else len(self.rows)

    @property
    def start_ns(self) -> Integers:  # type: ignore[override]
        return self._of(self.columns.start_ns)

    @property
    def end_ns(self) -> Integers:  # type: ignore[override]
        return self._of(self.columns.end_ns)

    @property
    def name(self) -> RowNumbers:
        return self._of(self.columns.name)

    @property
    def source(self) -> RowNumbers:
        if self.columns.source is None:
            assert self.rows is not None
            return row_numbers(self.rows)
        return self._of(self.columns.source)

    @property
    def bytes(self) -> Integers:
        return self._of(self.columns.bytes)

    def _of(self, column: Array) -> Array:
        return column if self.rows is None else picked(column, self.rows)

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
        return cls(content, _Columns(start, end, name, row_numbers(source), amount))

    @classmethod
    def some(
        cls, content: Content, start: Integers, end: Integers, name: RowNumbers, rows: Array
    ) -> Track:
        """A track of some rows of these columns; `source` are the rows."""
        amount = constant(0, len(start), np.int64)
        return cls(content, _Columns(start, end, name, None, amount), rows)

    def class_of_all(self, classes: Array) -> int | None:
        """The class of all rows if it is plain to see that they have the same.

        `classes` has the class of each name.
        """
        near = classes[self.columns.names]
        return int(near[0]) if len(near) and bool((near == near[0]).all()) else None

    def starting_before(self, times: Integers) -> Integers:
        """The number of rows that start before each time."""
        if self.rows is None:
            return np.searchsorted(self.columns.start_ns, times)
        low, high = np.zeros(len(times), np.int64), np.full(len(times), len(self))
        while (low < high).any():
            middle = (low + high) // 2
            start = self.columns.start_ns[self.rows[np.minimum(middle, len(self) - 1)]]
            before, ahead = start < times, low < high
            low = np.where(ahead & before, middle + 1, low)
            high = np.where(ahead & ~before, middle, high)
        return low

    def take(self, rows: Array | slice) -> Track:
        if self.rows is not None:
            return Track(self.content, self.columns, picked(self.rows, rows))
        columns = (self.start_ns, self.end_ns, self.name, self.source, self.bytes)
        start, end, name, source, amount = (picked(column, rows) for column in columns)
        return Track.of(self.content, start, end, name, source, amount)


LaneKind = Literal["steps", "phases", "thread", "stream", "idle", "migrations"]


@record
class Lane:
    """Tracks under one heading.

    `device`, `process` and `thread` are rows of the devices, processes and threads tables, −1 for
    none. `stream` is the stream number of CUDA.
    """

    kind: LaneKind
    title: str
    tracks: tuple[Track, ...]
    device: int = -1
    process: int = -1
    thread: int = -1
    stream: int = -1

    @property
    def rows(self) -> int:
        """Rows on all of its tracks."""
        return sum(map(len, self.tracks))


def spread(rows: Track) -> tuple[Track, ...]:
    """Spread rows, in any order, over as few tracks as they need: each to the first free one."""
    ordered, overlapping = intervals.overlapping(rows.start_ns, rows.end_ns)
    if not ordered:
        rows = rows.take(np.lexsort((-rows.end_ns, rows.start_ns)))
        _, overlapping = intervals.overlapping(rows.start_ns, rows.end_ns)
    tracks: list[Track] = []
    while len(overlapping) and len(tracks) < MOST_TRACKS - 1:
        on_track = np.ones(len(rows), bool)
        on_track[overlapping] = first_track(rows.start_ns[overlapping], rows.end_ns[overlapping])
        tracks.append(rows.take(np.flatnonzero(on_track)))
        rows = rows.take(np.flatnonzero(~on_track))
        _, overlapping = intervals.overlapping(rows.start_ns, rows.end_ns)
    return (*tracks, rows) if len(rows) else tuple(tracks)


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
