"""Raw rows of a table of an nsys export, for any schema version."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from traceview.records import record
from traceview.tables import NULL, Array, Integers, Mask, Texts, constant, picked
from traceview.trace.sqlite.file import Database
from traceview.trace.sqlite.row_reader import Columns, Kind, Numbers, UnreadableTableError
from traceview.trace.staged import INT32, absent_texts

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
        return Numbers(constant(0, len(self), np.int64), constant(True, len(self), bool))

    def texts(self, name: str) -> Texts:
        column = self._columns.get(name)
        if isinstance(column, Texts):
            return column
        return absent_texts(len(self))

    def null(self, name: str) -> Mask:
        null = self.numbers(name).null
        return constant(False, len(self), bool) if null is None else null

    def integer(self, name: str, default: int = 0) -> Integers:
        """A column as int64, with `default` for NULL."""
        return _typed(self.cells(name, default), np.int64)

    def cells(self, name: str, default: int = 0) -> Array:
        """A column in the type that it was read in, with `default` for NULL."""
        numbers = self.numbers(name)
        if numbers.null is None:
            return numbers.values
        if numbers.is_absent:
            return constant(default, len(self), np.int64)
        return np.where(numbers.null, np.int64(default), numbers.values)

    def nullable(self, name: str) -> Integers:
        """A column as int64 with NULL for absent values; a writable int64 column is not copied."""
        numbers = self.numbers(name)
        values: Integers = numbers.values
        if numbers.null is None or values.dtype != np.int64 or not values.flags.writeable:
            return self.integer(name, NULL)
        # The values in place of NULL are meaningless and may be overwritten.
        np.putmask(values, numbers.null, NULL)
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
    null = None if column.null is None else picked(column.null, rows)
    return Numbers(picked(column.values, rows), null)


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
