"""Raw rows of a table of an nsys export, for any schema version, and the names in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from traceview.base import tables
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Texts
from traceview.base.tables.arrays import numbered
from traceview.traces.trace.schema import UNIFIED
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.sqlite.row_reader import Columns, Kind, Numbers, UnreadableTableError
from traceview.traces.trace.staged import INT32, absent_texts, same_text

_ESSENTIAL = frozenset(
    {
        *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")),
        *("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS"),
    }
)
"""Tables without which most answers would be wrong. Any other that is damaged is left out."""


@record
class ExportTable:
    """A table of an export, with its required, optional and text columns."""

    table: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class Rows:
    """The columns of a table; a missing one is NULL in every row."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._length = len(next(iter(columns.values())))

    def __len__(self) -> int:
        return self._length

    def numbers(self, name: str) -> Numbers:
        column = self._columns.get(name)
        if isinstance(column, Numbers):
            return column
        return Numbers(
            tables.constant(0, len(self), np.int64), tables.constant(True, len(self), bool)
        )

    def texts(self, name: str) -> Texts:
        column = self._columns.get(name)
        if isinstance(column, Texts):
            return column
        return absent_texts(len(self))

    def null(self, name: str) -> Mask:
        null = self.numbers(name).null
        return tables.constant(False, len(self), bool) if null is None else null

    def integer(self, name: str, default: int = 0) -> Integers:
        """A column as int64, with `default` for NULL."""
        return _typed(self.cells(name, default), np.int64)

    def cells(self, name: str, default: int = 0) -> Array:
        """A column in the type that it was read in, with `default` for NULL."""
        numbers = self.numbers(name)
        if numbers.null is None:
            return numbers.values
        if numbers.is_absent:
            return tables.constant(default, len(self), np.int64)
        return np.where(numbers.null, np.int64(default), numbers.values)

    def nullable(self, name: str) -> Integers:
        """A column as int64 with NULL for absent values; a writable int64 column is not copied."""
        numbers = self.numbers(name)
        values: Integers = numbers.values
        if numbers.null is None or values.dtype != np.int64 or not values.flags.writeable:
            return self.integer(name, tables.NULL)
        # The values in place of NULL are meaningless and may be overwritten.
        np.putmask(values, numbers.null, tables.NULL)
        return values

    def identity(self, name: str) -> npt.NDArray[np.int32]:
        """A column of 32-bit ids; unsigned ids wrap, which keeps them distinct."""
        return _typed(self.cells(name), np.int32)

    def amount(self, name: str) -> npt.NDArray[np.int32]:
        """A column of quantities, clipped to int32."""
        values = self.cells(name)
        if len(values) and not INT32.min < values.min() <= values.max() <= INT32.max:
            values = values.clip(INT32.min + 1, INT32.max)
        return _typed(values, np.int32)

    def span(self) -> dict[str, Integers]:
        """The columns start_ns and end_ns, as recorded: see `impossible_rows`."""
        return {"start_ns": self.nullable("start"), "end_ns": self.nullable("end")}

    def where(self, mask: Mask) -> Rows:
        """The rows where `mask` is True."""
        # Applying a mask costs as much per column as finding its rows does once.
        chosen = np.flatnonzero(mask)
        return Rows({name: _chosen(column, chosen) for name, column in self._columns.items()})


def _chosen(column: Numbers | Texts, rows: Array) -> Numbers | Texts:
    if isinstance(column, Texts):
        return column.take(rows)
    null = None if column.null is None else tables.picked(column.null, rows)
    return Numbers(tables.picked(column.values, rows), null)


def _typed(values: Array, dtype: npt.DTypeLike) -> Array:
    """Cast values; a `constant` stays one."""
    if values.strides != (0,) or not len(values):
        return values.astype(dtype, copy=False)
    return np.broadcast_to(values[:1].astype(dtype).reshape(()), len(values))


class Export:
    """An open export, and warnings from reading it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.warnings: list[str] = []
        self.unusable: dict[str, str] = {}

    def has(self, table: str) -> bool:
        return table in self.database.tables

    def read_ahead(self, *sources: ExportTable) -> None:
        """Begin to read these tables, in that order, in another thread; `rows` returns them."""
        for source in sources:
            if self.has(source.table):
                stored = self.database.describe(source.table).columns
                if set(source.required) <= set(stored):
                    self.database.read_ahead(source.table, _wanted(source, stored))

    def rows(self, source: ExportTable) -> Rows | None:
        """The rows of a table; None if it is missing, or, with a warning, if it lacks a column.

        So is a damaged one left out, unless it is _ESSENTIAL: that raises UnreadableTableError.
        """
        if not self.has(source.table):
            return None
        stored = self.database.describe(source.table).columns
        lacking = [name for name in source.required if name not in stored]
        if lacking:
            lacks = f"has no column {', '.join(lacking)}"
            self.unusable[source.table] = f"table {source.table} {lacks}"
            self.warnings.append(f"table {source.table} was not read: it {lacks}")
            return None
        try:
            return Rows(self.database.read(source.table, _wanted(source, stored)))
        except UnreadableTableError as error:
            if source.table in _ESSENTIAL:
                raise
            self.unusable[source.table] = error.what
            self.warnings.append(f"{error.what}; the table was left out")
            return None


def _wanted(source: ExportTable, there: tuple[str, ...]) -> Mapping[str, Kind]:
    named = dict.fromkeys((*source.required, *source.optional, *source.texts))
    return {name: "text" if name in source.texts else "integer" for name in named if name in there}


UNNAMED = "(unnamed)"


@record
class Enumeration:
    """An enumeration: its table in the export, and what its numbers mean without that table.

    `word` gives the meaning of a row of the table, from its name and its label in lower case; None
    if it tells none.
    """

    table: str
    default: Mapping[int, str]
    word: Callable[[str, str], str | None] = lambda _, label: label or None

    def of(self, database: Database) -> dict[int, str]:
        """What each number means, as the export itself numbers them."""
        rows = database.lines(self.table, ("id", "name", "label"))
        stored = {
            number: self.word(str(name), str(label or "").lower())
            for number, name, label in rows
            if type(number) is int
        }
        return {**self.default, **{number: word for number, word in stored.items() if word}}


def _by_ending(endings: Mapping[str, str]) -> Callable[[str, str], str | None]:
    return lambda name, _: next((w for end, w in endings.items() if name.endswith(end)), None)


_COPY_WORDS = re.compile(r"(_UVM)?_([HDAP])TO([HDAP])$")


def _direction(name: str, _: str) -> str | None:
    match = _COPY_WORDS.search(name)
    return f"{UNIFIED if match[1] else ''}{match[2]}2{match[3]}" if match else None


_DIRECTIONS = "unknown H2D D2H H2A A2H A2A A2D D2A D2D H2H P2P"
_MIGRATIONS = (f"{UNIFIED}H2D", f"{UNIFIED}D2H", f"{UNIFIED}D2D")
COPY_DIRECTIONS = Enumeration(
    "ENUM_CUDA_MEMCPY_OPER", dict(enumerate((*_DIRECTIONS.split(), *_MIGRATIONS))), _direction
)
_CAUSES = (
    *("unknown", "user prefetch", "page fault", "speculative prefetch", "eviction"),
    "access counters",
)
MIGRATION_CAUSES = dict(enumerate(_CAUSES))
_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static")
MEMORY_KINDS = Enumeration(
    "ENUM_CUDA_MEM_KIND", {**dict(enumerate((*_MEMORY, "unknown"))), tables.NULL: "unknown"}
)
MEMORY_OPERATIONS = Enumeration(
    "ENUM_CUDA_DEV_MEM_EVENT_OPER",
    {0: "allocation", 1: "release"},
    lambda _, label: "release" if label.startswith("de") else label or None,
)
SEVERITIES = Enumeration(
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
    {0: "unknown", 1: "info", 2: "warning", 3: "error", 4: "verbose"},
)
JIT_OPERATIONS = Enumeration(
    "ENUM_CUPTI_JIT_OPERATION_TYPE",
    {1: "cache load", 2: "cache store", 3: "compile"},
    _by_ending({"CACHE_LOAD": "cache load", "CACHE_STORE": "cache store", "COMPILE": "compile"}),
)
SYNC_KINDS = Enumeration(
    "ENUM_CUPTI_SYNC_TYPE",
    {0: "unknown", 1: "event", 2: "stream-wait-event", 3: "stream", 4: "context"},
    _by_ending(
        {
            "STREAM_WAIT_EVENT": "stream-wait-event",
            "EVENT_SYNCHRONIZE": "event",
            "STREAM_SYNCHRONIZE": "stream",
            "CONTEXT_SYNCHRONIZE": "context",
        }
    ),
)


def numbered_pairs(first: Array, second: Array) -> tuple[list[tuple[int, int]], RowNumbers]:
    """The distinct pairs of two columns, and for each row the index of its pair."""
    (ones, one), (others, other) = numbered(first), numbered(second)
    if len(others) == 1:
        return [(int(value), int(others[0])) for value in ones], one
    pairs, codes = numbered(one.astype(np.int64) * len(others) + other)
    split = (divmod(pair, len(others)) for pair in pairs.tolist())
    return [(int(ones[a]), int(others[b])) for a, b in split], codes


class Names:
    """The StringIds table. Only the strings looked up are read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def texts(self, ids: Numbers) -> Texts:
        """The string of every id: absent for an absent id, a placeholder for an unknown one."""
        distinct, codes = numbered(ids.values)
        texts = Texts(codes, tables.object_array(self.of(distinct))).map(self.of(distinct))
        if ids.null is None:
            return texts
        if ids.is_absent:
            return Texts(tables.constant(-1, len(codes), np.int32), texts.values)
        return Texts(np.where(ids.null, np.int32(-1), texts.codes), texts.values)

    def of(self, ids: Integers) -> list[str]:
        """The strings of distinct ids."""
        keys = ids.tolist()
        found: dict[int, object] = {}
        if "StringIds" in self._database.tables:
            found = self._database.lookup("StringIds", "id", "value", keys)
        return [str(found.get(key, f"(unknown name #{key})")) for key in keys]


def first_of(preferred: Texts, other: Texts) -> Texts:
    """Row by row, the text in `preferred`, or where that is absent the text in `other`."""
    if (preferred.codes >= 0).all():
        return preferred
    every = Texts.of([*preferred.values, *other.values])
    shifted = np.where(other.codes >= 0, other.codes + len(preferred.values), -1)
    codes = np.where(preferred.codes >= 0, preferred.codes, shifted)
    places = np.append(every.codes, np.int32(-1))
    return Texts(places[codes], every.values)


def filled(texts: Texts, default: str) -> Texts:
    """The texts, with `default` in the rows where they are absent."""
    one = same_text(default, len(texts))
    return first_of(texts, one)


def meanings(values: Array, words: Mapping[int, str]) -> Texts:
    """The label of every number; `kind 17` for an unknown one."""
    distinct, codes = numbered(values)
    labels = [words.get(value, f"kind {value}") for value in distinct.tolist()]
    return Texts(codes, tables.object_array(labels)).map(labels)
