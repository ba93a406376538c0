"""Tables: typed columns of equal length, passed between all packages.

Columns are numpy arrays, not a pandas frame: importing pandas alone takes longer than reading a
small trace, and joins by direct addressing on integer arrays are several times faster at a
million rows. `Table.to_pandas` is there for users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from traceview import display
from traceview.errors import ToolNotFoundError

if TYPE_CHECKING:
    import pandas as pd

Dtype = Literal["int64", "int32", "int16", "uint8", "bool", "float64", "text", "bytes"]
Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
RowNumbers = npt.NDArray[np.int32]
TextValues = npt.NDArray[np.object_]
Cell = int | float | bool | str | None


@dataclass(frozen=True)
class Column:
    """One declared column. The name of a quantity ends in its unit.

    `prose` is for sentences, which lose their sense where a name may lose its middle.
    """

    name: str
    dtype: Dtype
    meaning: str
    nullable: bool = False
    prose: bool = False


def null_of(dtype: np.dtype[Any]) -> int:
    """The value for "absent" in a nullable integer column: the minimum of its type."""
    return int(np.iinfo(dtype).min)


NULL = null_of(np.dtype(np.int64))


MOST_ROWS = int(np.iinfo(np.int32).max)


def row_numbers(rows: Array) -> RowNumbers:
    """Row numbers as int32; no table has more than MOST_ROWS rows."""
    return rows.astype(np.int32, copy=False)


def constant(value: int | float, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A read-only array of that length or shape of equal values that stores the value once."""
    return np.broadcast_to(np.array(value, dtype), shape)


def thrifty(values: Array) -> Array:
    """The same values, as a `constant` if they are all equal."""
    if len(values) < 2 or values[0] != values[-1] or values.strides == (0,):
        return values
    return constant(values[0], len(values), values.dtype) if (values == values[0]).all() else values


def picked(values: Array, rows: Array) -> Array:
    """`values[rows]`, without a copy if either is a `constant`."""
    if rows.dtype != bool and rows.strides == (0,) and len(rows):
        return constant(values[rows[0]], len(rows), values.dtype)
    if values.strides != (0,) or not len(values):
        return values[rows]
    return np.broadcast_to(values[:1].reshape(()), _count(rows))


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate the parts; equal constants stay a `constant`."""
    there = [part for part in parts if len(part)] or list(parts[:1])
    if len(there) == 1:
        return there[0]
    same = all(part.strides == (0,) and part[0] == there[0][0] for part in there)
    total = sum(map(len, there))
    return constant(there[0][0], total, there[0].dtype) if same else np.concatenate(there)


def _count(rows: Array) -> int:
    return int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)


class Texts:
    """A column of text, stored once: small integer codes into an array of distinct values.

    `codes` is int32, one per row, −1 for absent; `values` is an object array of str. Several
    columns may share one `values`, and `values` may hold texts that no row uses. If `values` is a
    function, it is called on first use.
    """

    __slots__ = ("_values", "codes")

    def __init__(
        self, codes: npt.NDArray[np.int32], values: TextValues | Callable[[], TextValues]
    ) -> None:
        self.codes = codes
        self._values = values

    @property
    def values(self) -> TextValues:
        """The distinct texts, by code."""
        if callable(self._values):
            self._values = self._values()
        return self._values

    def value(self, code: int) -> str:
        """One of the distinct texts."""
        return str(self.values[code])

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> Texts:
        """Encode a sequence of str or None; values are in order of first appearance."""
        listed = list(texts)
        index = dict.fromkeys(listed)
        index.pop(None, None)
        return cls(places_of(listed, index), object_array(list(index)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return None if code < 0 else str(self.values[code])

    def take(self, rows: Array) -> Texts:
        """The rows of an index array or a mask."""
        return Texts(picked(self.codes, rows), self._values)

    def thrifty(self) -> Texts:
        """The same texts, with equal codes stored once."""
        return Texts(thrifty(self.codes), self._values)

    def decode(self) -> npt.NDArray[np.object_]:
        """An object array with one str or None per row."""
        if not len(self.values):
            return np.full(len(self.codes), None, object)
        decoded = self.values[self.codes]
        decoded[self.codes < 0] = None
        return decoded

    def map(self, new: Sequence[str | None]) -> Texts:
        """Replace the i-th distinct value by `new[i]`; equal results share one code."""
        mapped = Texts.of(new)
        if (mapped.codes == np.arange(len(mapped))).all():
            return Texts(self.codes, mapped.values)
        # Code −1, absent, picks the last element.
        codes = picked(np.append(mapped.codes, np.int32(-1)), self.codes)
        return Texts(codes, mapped.values)

    def isin(self, wanted: Iterable[str]) -> Mask:
        """True for the rows whose text is one of `wanted`."""
        chosen = set(wanted)
        hit = np.fromiter(map(chosen.__contains__, self.values), bool, len(self.values))
        result: Mask = _lookup(hit, self.codes) & (self.codes >= 0)
        return result


class TextSource(Protocol):
    """Numbered texts that are built on demand."""

    def __len__(self) -> int: ...

    @property
    def every(self) -> TextValues:
        """All of them."""

    def some(self, codes: Array) -> TextValues:
        """Those of some numbers, without the others."""


class MadeTexts(Texts):
    """A text column built on demand by a source; for few rows, only their texts."""

    __slots__ = ("_source",)

    # Building one text alone costs as much as this many built together.
    _FEW = 8

    def __init__(self, codes: npt.NDArray[np.int32], source: TextSource) -> None:
        super().__init__(codes, lambda: source.every)
        self._source = source

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row : row + 1]
        return None if code[0] < 0 else str(self._source.some(code)[0])

    def take(self, rows: Array) -> Texts:
        taken = super().take(rows)
        if not callable(self._values):
            # They are made already.
            return taken
        codes = taken.codes
        if self._FEW * len(codes) > len(self._source):
            return type(self)(codes, self._source)
        used, places = np.unique(codes, return_inverse=True)
        absent = int(np.count_nonzero(used < 0))
        part = _SomeTexts(self._source, used[absent:])
        return MadeTexts(places.astype(np.int32) - np.int32(absent), part)


class _SomeTexts:
    """Some of the texts of a source, of which fewer still may be wanted."""

    def __init__(self, source: TextSource, wanted: Array) -> None:
        self._source, self._wanted = source, wanted

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def every(self) -> TextValues:
        return self._source.some(self._wanted)

    def some(self, codes: Array) -> TextValues:
        return self._source.some(self._wanted[codes])


class TextsOneByOne(MadeTexts):
    """A text column of which each text costs the same, built alone or with others."""

    __slots__ = ()

    _FEW = 1


def places_of(values: Sequence[Any], distinct: Iterable[Any]) -> RowNumbers:
    """The place of each value among the distinct ones, −1 for those that are not there.

    Without a line of Python per value.
    """
    index = dict(zip(distinct, count()))
    return np.fromiter(map(index.get, values, repeat(-1)), np.int32, len(values))


def _lookup(values: Array, codes: Array) -> Array:
    """`values[codes]` that also works without any values."""
    return values[codes] if len(values) else np.zeros(len(codes), values.dtype)


def rows_of(values: Array | Texts, rows: Array) -> Array | Texts:
    """The rows of a column, numbers or text, by an index array or a mask."""
    return values.take(rows) if isinstance(values, Texts) else picked(values, rows)


def object_array(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """A one-dimensional object array, whatever the values are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


class Table:
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
        self._data = {c.name: _typed(c, data[c.name]) for c in columns}
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
        return len(next(iter(self._data.values()))) if self._data else 0

    def __getitem__(self, name: str) -> Array:
        """The array of a numeric column. For text see `texts`."""
        values = self._data[name]
        if isinstance(values, Texts):
            raise TypeError(f"{name} is text: use texts({name!r})")
        return values

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
        taken = {name: rows_of(values, rows) for name, values in self._data.items()}
        return Table(self.columns, taken)

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

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self)

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
            distinct = Texts.of(values.decode())
            return pd.Categorical.from_codes(distinct.codes, list(distinct.values))
        if column.nullable and values.dtype.kind == "i":
            return pd.array(self.cells(column.name), dtype="Int64")
        return values


def _typed(column: Column, values: Array | Texts | Sequence[Any]) -> Array | Texts:
    if column.dtype == "text":
        return values if isinstance(values, Texts) else Texts.of(values)
    if isinstance(values, Texts):
        raise TypeError(f"{column.name} is declared {column.dtype} and holds text")
    if column.dtype == "bytes":
        return _byte_strings(column, values)
    wanted = np.dtype(column.dtype)
    if isinstance(values, np.ndarray):
        if values.dtype != wanted:
            raise TypeError(f"{column.name} is declared {wanted} and holds {values.dtype}")
        return values
    absent = np.nan if wanted.kind == "f" else null_of(wanted) if wanted.kind == "i" else None
    if any(value is None for value in values) and not column.nullable:
        raise TypeError(f"{column.name} is not nullable and holds None")
    return np.array([absent if value is None else value for value in values], wanted)


def _byte_strings(column: Column, values: Array | Sequence[Any]) -> npt.NDArray[np.object_]:
    """An object array of bytes, None where absent."""
    allowed = (bytes, type(None)) if column.nullable else bytes
    if not all(isinstance(value, allowed) for value in values):
        raise TypeError(f"{column.name} is declared bytes and holds something else")
    return object_array(list(values))
