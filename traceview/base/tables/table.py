"""Tables: typed columns of equal length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

import numpy as np

from traceview.base import display
from traceview.base.errors import ToolNotFoundError
from traceview.base.records import record
from traceview.base.tables.arrays import Array, Integers, Mask, null_of, object_array, picked
from traceview.base.tables.texts import Texts, rows_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Dtype = Literal["int64", "int32", "int16", "uint8", "bool", "float64", "text", "bytes"]
Cell = int | float | bool | str | None


@dataclass(frozen=True)
class Column:
    """One declared column. The name of a quantity ends in its unit.

    `prose` marks sentences, which must not be shortened in the middle as names may be.
    """

    name: str
    dtype: Dtype
    meaning: str
    nullable: bool = False
    prose: bool = False


_DECLARED = re.compile(r"(\w+) (\w+)(\??): (.*)")


def column_list(text: str) -> tuple[Column, ...]:
    """Columns declared one per line, as `name dtype: meaning`, or `name dtype?:` where nullable.

    The dtype `sentence` is text that is prose. Any other line continues the meaning above it.
    Raises ValueError for an unknown dtype.
    """
    columns: list[Column] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if match := _DECLARED.fullmatch(line):
            name, kind, absent, meaning = match.groups()
            dtype = cast(Dtype, "text" if kind == "sentence" else kind)
            if dtype not in get_args(Dtype):
                raise ValueError(f"column {name} has the unknown dtype {kind}")
            columns.append(Column(name, dtype, meaning, bool(absent), kind == "sentence"))
        else:
            columns[-1] = replace(columns[-1], meaning=f"{columns[-1].meaning} {line}")
    return tuple(columns)


@dataclass(frozen=True)
class Share:
    """A float64 column made when it is read: what percentage of `whole` the column `of` is."""

    of: str
    whole: int

    def percent(self, part: Array) -> Array:
        share: Array = 100.0 * part
        share /= max(self.whole, 1)
        return share


class RowOrder(Protocol):
    """The rows of a table in order, which may be known for its beginning only."""

    def __len__(self) -> int: ...

    @property
    def every(self) -> Integers:
        """All rows in order."""
        ...

    def first(self, count: int) -> Integers:
        """The first rows in order."""
        ...


class Table(display.Drawn):
    """Rows with declared columns.

    Raises TypeError if the data do not match the declared columns in name, type and length.
    """

    __slots__ = ("_data", "columns")

    def __init__(
        self, columns: Sequence[Column], data: Mapping[str, Array | Texts | Sequence[Any]]
    ) -> None:
        names = [column.name for column in columns]
        if set(names) != set(data):
            odd = sorted(set(names) ^ set(data))
            raise TypeError(f"columns are not those declared: {', '.join(odd)}")
        self.columns = tuple(columns)
        self._data: Mapping[str, Array | Texts] = {c.name: _typed(c, data[c.name]) for c in columns}
        lengths = {len(values) for values in self._data.values()}
        if len(lengths) > 1:
            raise TypeError(f"columns differ in length: {sorted(lengths)}")

    @classmethod
    def empty(cls, columns: Sequence[Column]) -> Table:
        return cls(columns, {column.name: [] for column in columns})

    @classmethod
    def from_rows(cls, columns: Sequence[Column], rows: Iterable[Mapping[str, Cell]]) -> Table:
        """A small table from one mapping per row; None where absent."""
        listed = list(rows)
        return cls(columns, {c.name: [row[c.name] for row in listed] for c in columns})

    def __len__(self) -> int:
        if isinstance(self._data, _InOrder):
            return len(self._data.order)
        return len(next(iter(self._data.values()))) if self._data else 0

    def __iter__(self) -> Iterator[str]:
        """Names of the columns."""
        return (column.name for column in self.columns)

    def __getitem__(self, name: str) -> Array:
        """The array of a column; of text, one str or None per row (see `texts`)."""
        values = self._data[name]
        return values.decode() if isinstance(values, Texts) else values

    def texts(self, name: str) -> Texts:
        values = self._data[name]
        if not isinstance(values, Texts):
            raise TypeError(f"{name} is not text")
        return values

    def is_null(self, name: str) -> Mask:
        """True where a value is absent."""
        values = self._data[name]
        if isinstance(values, Texts):
            return values.codes < 0
        if values.dtype.kind == "f":
            return np.isnan(values)
        if values.dtype.kind == "O":
            return np.array([value is None for value in values], bool)
        if values.dtype.kind == "i" and self.column(name).nullable:
            mask: Mask = values == null_of(values.dtype)
            return mask
        return np.zeros(len(values), bool)

    @property
    def duration_ns(self) -> Integers:
        """`end_ns` less `start_ns` of each row."""
        duration: Integers = self["end_ns"] - self["start_ns"]
        return duration

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def take(self, rows: Array) -> Table:
        """The rows of an index array or a mask, in that order."""
        if rows.dtype == bool:
            if rows.all():
                return self
            # Applying a mask costs as much per column as finding its rows does once.
            rows = np.flatnonzero(rows)
        if isinstance(self._data, _InOrder):
            return Table(self.columns, self._data.take(rows))
        taken = {name: rows_of(values, rows) for name, values in self._data.items()}
        return Table(self.columns, taken)

    def in_order(self, order: RowOrder, columns: Sequence[Column] = (), **shares: Share) -> Table:
        """The rows in an order; each column is reordered when it is read.

        `columns` are those of the result: these and the `shares`, which are computed when they are
        read. A page shows a thousand of a million ordered rows.
        """
        ordered = Table.empty(columns or self.columns)
        ordered._data = _InOrder({**self._data, **shares}, order)
        return ordered

    def total(self, name: str, without: Array) -> Cell:
        """The sum of a numeric column over all rows but some, by number; absent values are 0."""
        if isinstance(self._data, _InOrder) and not self.column(name).nullable:
            return self._data.total(name, without)
        others = ~self.is_null(name)
        others[without] = False
        values = self[name][others]
        return float(values.sum()) if values.dtype.kind == "f" else int(values.sum())

    def with_columns(self, **replaced: Array | Texts) -> Table:
        return Table(self.columns, {**self._data, **replaced})

    def cells(self, name: str) -> list[Cell]:
        """One column as Python values, None where absent."""
        values = self._data[name]
        if isinstance(values, Texts):
            return list(values.decode())
        cells: list[Cell] = values.tolist()
        absent = np.flatnonzero(self.is_null(name))
        for row in absent.tolist():
            cells[row] = None
        return cells

    def rows(self) -> Iterator[dict[str, Cell]]:
        """One dict per row, None where absent."""
        names = [column.name for column in self.columns]
        for values in zip(*(self.cells(name) for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def head(self, rows: int = 5) -> Table:
        """The first rows."""
        return self.take(np.arange(min(rows, len(self))))

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table: text as dictionaries; numbers share memory with this table.

        polars, DuckDB and whatever else reads Arrow's PyCapsule interface take the table as it is:
        `polars.DataFrame(table)`. Raises ToolNotFoundError without pyarrow.
        """
        try:
            import pyarrow as pa
        except ImportError:
            remedy = "install it: pip install 'traceview[sql]'"
            raise ToolNotFoundError("Arrow tables need pyarrow", remedy) from None
        return pa.table({name: self._arrow_array(name) for name in self})

    def _arrow_array(self, name: str) -> Any:
        import pyarrow as pa

        values = self._data[name]
        if isinstance(values, Texts):
            used = values.used()
            codes = pa.array(used.codes, mask=used.codes < 0)
            return pa.DictionaryArray.from_arrays(codes, pa.array(used.values, pa.string()))
        absent = self.is_null(name)
        if values.dtype.kind == "O":
            return pa.array(self.cells(name), pa.binary())
        return pa.array(values, mask=absent if absent.any() else None)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame: text as categories, nullable integers as Int64.

        Raises ToolNotFoundError without pandas.
        """
        try:
            import pandas as pd
        except ImportError:
            remedy = "install it: pip install pandas"
            raise ToolNotFoundError("to_pandas() needs pandas", remedy) from None
        return pd.DataFrame({c.name: self._series(c) for c in self.columns})

    def _series(self, column: Column) -> Any:
        import pandas as pd

        values = self._data[column.name]
        if isinstance(values, Texts):
            used = values.used()
            return pd.Categorical.from_codes(used.codes, list(used.values))
        if column.nullable and values.dtype.kind == "i":
            return pd.array(self.cells(column.name), dtype="Int64")
        return values


class _InOrder(Mapping[str, Array | Texts]):
    """The columns of a table, each reordered when it is first read."""

    def __init__(self, columns: Mapping[str, Array | Texts | Share], order: RowOrder) -> None:
        self._columns, self.order = columns, order
        self._ordered: dict[str, Array | Texts] = {}
        self._first = np.zeros(0, np.int64)

    def __getitem__(self, name: str) -> Array | Texts:
        if name not in self._ordered:
            self._ordered[name] = self._of(name, self.order.every)
        return self._ordered[name]

    def _of(self, name: str, rows: Array) -> Array | Texts:
        values = self._columns[name]
        if not isinstance(values, Share):
            return rows_of(values, rows)
        part = self._columns[values.of]
        assert isinstance(part, np.ndarray)
        return values.percent(picked(part, rows))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _rows(self, places: Array) -> Array:
        """The rows at some places in the order."""
        count = int(places.max(initial=-1)) + 1
        if count > len(self._first):
            self._first = self.order.first(count)
        rows: Array = self._first[places]
        return rows

    def total(self, name: str, without: Array) -> Cell:
        """The sum of a column over all rows but some of the ordered ones, without reordering."""
        values = self._columns[name]
        if isinstance(values, Share):
            part = self.total(values.of, without)
            return float(values.percent(np.array([part]))[0])
        assert isinstance(values, np.ndarray)
        left: Cell = (values.sum() - picked(values, self._rows(without)).sum()).item()
        return left

    def take(self, places: Array) -> dict[str, Array | Texts]:
        """The columns at some of the ordered rows, without reordering the others."""
        rows = self._rows(places)
        return {name: self._of(name, rows) for name in self._columns}


def _typed(column: Column, values: Array | Texts | Sequence[Any]) -> Array | Texts:
    if column.dtype == "text":
        return values if isinstance(values, Texts) else Texts.of(values)
    if isinstance(values, Texts):
        raise TypeError(f"{column.name} is declared {column.dtype} and holds text")
    if column.dtype == "bytes":
        # An object array of bytes, None where absent.
        allowed = (bytes, type(None)) if column.nullable else bytes
        if not all(isinstance(value, allowed) for value in values):
            raise TypeError(f"{column.name} is declared bytes and holds something else")
        return object_array(list(values))
    wanted = np.dtype(column.dtype)
    if isinstance(values, np.ndarray):
        if values.dtype != wanted:
            raise TypeError(f"{column.name} is declared {wanted} and holds {values.dtype}")
        return values
    absent = np.nan if wanted.kind == "f" else null_of(wanted) if wanted.kind == "i" else None
    if any(value is None for value in values) and not column.nullable:
        raise TypeError(f"{column.name} is not nullable and holds None")
    return np.array([absent if value is None else value for value in values], wanted)


@record
class Keep:
    """The rows of a long table to keep: those with the greatest, or least, values of a column."""

    column: str
    greatest: bool = True


@record
class TableSpec:
    """The declaration of one result table: its name, the meaning of a row, its columns.

    Rows come in the order that matters most to a reader. `brief` names the columns that a narrow
    terminal shows first, in that order, such as `"label calls total_ns"`. A table of `detail` is
    summed up by another one, so a terminal only mentions it. `adds` names the columns whose sum
    over all rows counts nothing twice. A document that shortens a long table keeps its first rows,
    or those of `keep`. A `rare` table is shown only where it has rows; JSON always has it.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    brief: str
    detail: bool = False
    adds: str = ""
    keep: Keep | None = None
    rare: bool = False

    @cached_property
    def brief_names(self) -> tuple[str, ...]:
        return tuple(self.brief.split())

    @property
    def brief_first(self) -> list[Column]:
        """The columns, brief ones first: small screens show these without scrolling."""
        columns = {column.name: column for column in self.columns}
        return [columns.pop(name) for name in self.brief_names if name in columns] + [
            *columns.values()
        ]
