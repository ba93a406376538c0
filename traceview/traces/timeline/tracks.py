"""Tracks: rows of the timeline that follow each other in time, and their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Timed
from traceview.base.records import record
from traceview.base.tables import (
    Array,
    Integers,
    Mask,
    RowNumbers,
    Texts,
    constant,
    picked,
    row_numbers,
)
from traceview.base.tables.packed_texts import PackedTextColumn, PackedTexts
from traceview.base.vocabulary import activities, amounts, causes
from traceview.traces.analyses.phases.phases import Phase
from traceview.traces.facts import kernel_classes, operations

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


# Classes of timeline rows: each has one colour and one entry in the legend.

COPIES = ("h2d", "d2h", "d2d", "p2p", "other", "migration")
_CALLS = {
    operations.CallKind.OTHER: "call",
    operations.CallKind.LAUNCH: "call-launch",
    operations.CallKind.SYNCHRONIZE: "call-sync",
    operations.CallKind.COPY: "call-copy",
    operations.CallKind.COPY_ASYNC: "call-copy",
    operations.CallKind.ALLOCATE: "call-allocate",
    operations.CallKind.LOAD: "call-load",
    operations.CallKind.LOOK_UP: "call-load",
    operations.CallKind.GRAPH: "call-graph",
}
CLASSES: tuple[str, ...] = (
    *(f"kernel-{kind.label}" for kind in kernel_classes.KernelClass),
    *(f"copy-{direction}" for direction in COPIES),
    "memset",
    "graph",
    *dict.fromkeys(_CALLS.values()),
    "call-harmful",
    "range",
    "step",
    "step-warm-up",
    "step-outlier",
    *(f"phase-{phase.label}" for phase in Phase),
    *(f"python-{doing}" for doing in activities.ACTIVITY_NAMES),
    *(f"idle-{cause}" for cause in causes.CAUSE_NAMES),
)
"""Published names of the classes; a row of the timeline refers to one by its index here."""
NUMBER = {name: number for number, name in enumerate(CLASSES)}

FIRST_KERNEL = NUMBER["kernel-gemm"]
"""The first class of kernels; the others follow in the order of KernelClass."""
FIRST_PHASE = NUMBER["phase-start-up"]
FIRST_DOING = NUMBER["python-cpu"]
FIRST_CAUSE = NUMBER[f"idle-{causes.CAUSE_NAMES[0]}"]
CLASS_OF_CALL = tuple(NUMBER[_CALLS[kind]] for kind in operations.CallKind)
HARMFUL = NUMBER["call-harmful"]


@record
class NameTable:
    """The names in use, renumbered: `place` maps a number of RowNames to the new number.

    `packed` are the labels, `classes` numbers of CLASSES, `whole` the full name where it differs
    (else empty). `launch` is the launch configuration of a kernel (see stream_lanes), −1 for none.
    """

    packed: PackedTexts
    classes: Integers
    whole: list[str]
    launch: Integers
    place: RowNumbers

    def __len__(self) -> int:
        return len(self.packed)

    def texts(self) -> list[str]:
        """The labels, decoded."""
        return self.packed.every.tolist()


@record
class _Part:
    """The names of one `add`; `row` is a row of `texts` and `whole` that has each name."""

    row: Array
    texts: Texts
    classes: Integers
    whole: Texts | None
    launch: Integers


@dataclass
class RowNames:
    """Distinct names; a row refers to its name by number.

    Some numbers may have no row. Names become str in `table`, for those in use only: a page shows
    a part of a million range names.
    """

    _parts: list[_Part] = field(default_factory=list)
    _count: int = 0

    def add(
        self,
        texts: Texts,
        classes: Array | int,
        whole: Texts | None = None,
        launch: Array | None = None,
    ) -> RowNumbers:
        """Add the names of rows and return the number of each row's name."""
        if isinstance(classes, int) and whole is None and launch is None:
            return self._add_of_one_class(texts, classes)
        classes = np.broadcast_to(classes, len(texts))
        keys = (texts.codes, classes, None if whole is None else whole.codes, launch)
        distinct = groups.group(*(key for key in keys if key is not None))
        none = constant(-1, distinct.size, np.int64)
        launches = none if launch is None else launch[distinct.first].astype(np.int64)
        return self._numbered(
            _Part(distinct.first, texts, classes[distinct.first].astype(np.int64), whole, launches),
            row_numbers(distinct.ids),
        )

    def _add_of_one_class(self, texts: Texts, kind: int) -> RowNumbers:
        """Number names by their text codes, without comparing rows; the last is the absent text."""
        count = int(texts.codes.max(initial=-1)) + 2
        row = np.zeros(count, np.int32)
        row[texts.codes] = np.arange(len(texts), dtype=np.int32)
        absent = len(texts) > 0 and bool(texts.codes.min() < 0)
        number = np.where(texts.codes < 0, count - 1, texts.codes) if absent else texts.codes
        none = constant(-1, count, np.int64)
        return self._numbered(
            _Part(row, texts, constant(kind, count, np.int64), None, none), row_numbers(number)
        )

    def _numbered(self, part: _Part, number: RowNumbers) -> RowNumbers:
        first = np.int32(self._count)
        self._parts.append(part)
        self._count += len(part.row)
        return number + first

    def __len__(self) -> int:
        return self._count

    @property
    def classes(self) -> Integers:
        """The class of each name."""
        return np.concatenate([np.zeros(0, np.int64), *(part.classes for part in self._parts)])

    def text(self, number: int) -> str:
        """The name with that number."""
        for part in self._parts:
            if number < len(part.row):
                return _bounded(part.texts.take(part.row[number : number + 1]))[0]
            number -= len(part.row)
        raise IndexError(number)

    def table(self, numbers: Iterable[RowNumbers]) -> NameTable:
        """The names that have these numbers."""
        used = np.zeros(len(self), bool)
        for some in numbers:
            used[some] = True
        texts: list[PackedTexts] = []
        whole: list[str] = []
        launch, first = [np.zeros(0, np.int64)], 0
        for part in self._parts:
            chosen = np.flatnonzero(used[first : first + len(part.row)])
            rows = part.row[chosen]
            texts.append(_packed(part.texts.take(rows)))
            whole += [""] * len(rows) if part.whole is None else _bounded(part.whole.take(rows))
            launch.append(part.launch[chosen])
            first += len(part.row)
        place = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return NameTable(
            PackedTexts.joined(texts), self.classes[used], whole, np.concatenate(launch), place
        )


def _packed(texts: Texts) -> PackedTexts:
    """The names like `_bounded`, in bytes."""
    if isinstance(texts, PackedTextColumn) and not (texts.codes < 0).any():
        picked = texts.packed.picked(texts.codes)
        if int(picked.sizes.max(initial=0)) <= amounts.NAME_CHARACTERS:
            return picked
    return PackedTexts.encoded(_bounded(texts))


def _bounded(texts: Texts) -> list[str]:
    """The names, overlong ones without their middle; empty for an absent text."""
    names: list[str] = texts.decode().tolist()
    if (texts.codes < 0).any():
        names = [name or "" for name in names]
    if max(map(len, names), default=0) <= amounts.NAME_CHARACTERS:
        return names
    half = amounts.NAME_CHARACTERS // 2
    return [n if len(n) <= amounts.NAME_CHARACTERS else f"{n[:half]}…{n[-half:]}" for n in names]
