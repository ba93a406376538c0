"""Read columns of a table through the sqlite3 module: slow, but correct for every database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from traceview.base.errors import TraceFormatError
from traceview.base.records import record
from traceview.base.tables import Array, Mask, Texts, constant, object_array, packed_texts

Kind = Literal["integer", "text"]
BATCH = 50_000
# Minimum: cell pointer, length, rowid and header. A damaged b-tree whose pages point at each other
# yields rows forever; a valid file cannot yield more than its size divided by this.
LEAST_ROW_BYTES = 5


@record
class Numbers:
    """A column of integers, of any signed type.

    `null` is True for NULL; None means no NULLs. Both arrays may be a `constant`.
    """

    values: Array
    null: Mask | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_absent(self) -> bool:
        """Whether every row is NULL."""
        if self.null is None:
            return False
        return bool(self.null[:1].all() if self.null.strides == (0,) else self.null.all())


Columns = Mapping[str, Numbers | Texts]


class UnreadableTableError(TraceFormatError):
    """A table is damaged (`column` None), or a column of it holds values of another type."""

    def __init__(self, what: str, table: str, column: str | None = None) -> None:
        super().__init__(what, "export the recording again")
        self.table, self.column = table, column


def quoted(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def lenient_text(raw: bytes) -> str:
    """Decode text of a trace, replacing invalid bytes."""
    return raw.decode("utf-8", errors="replace")


def lenient_texts(raw: Sequence[bytes]) -> list[str]:
    """Decode texts of a trace, replacing invalid bytes; all at once where no text has NUL."""
    joined = b"\0".join(raw)
    if joined.count(b"\0") != max(len(raw) - 1, 0):
        return list(map(lenient_text, raw))
    return lenient_text(joined).split("\0") if raw else []


def read_rows(
    connection: sqlite3.Connection, table: str, wanted: Mapping[str, Kind], file_bytes: int
) -> Columns:
    """Read the wanted columns, rows in the order of the table's b-tree.

    Raises UnreadableTableError if a number is wanted where the table holds something else, or if
    the table yields more rows than a file of that size can hold; sqlite3.Error if it is damaged.
    """
    pieces: dict[str, list[Numbers]] = {name: [] for name in wanted}
    coders: dict[str, _Coder] = {name: _Coder() for name in wanted}
    for batch in _batches(connection, table, list(wanted), file_bytes // LEAST_ROW_BYTES):
        for (name, kind), cells in zip(wanted.items(), zip(*batch, strict=True), strict=True):
            if kind == "text":
                coders[name].add(cells)
            else:
                pieces[name].append(_numbers(table, name, cells))
    return {
        name: coders[name].texts() if kind == "text" else joined(pieces[name])
        for name, kind in wanted.items()
    }


def _batches(
    connection: sqlite3.Connection, table: str, names: Sequence[str], most: int
) -> Iterator[list[tuple[object, ...]]]:
    # NOT INDEXED: a covering index would hand the rows out in its own order.
    listed = ", ".join(quoted(name) for name in names)
    cursor = connection.execute(f"SELECT {listed} FROM {quoted(table)} NOT INDEXED")  # noqa: S608
    rows = 0
    while batch := cursor.fetchmany(BATCH):
        rows += len(batch)
        if rows > most:
            raise UnreadableTableError(
                f"table {table} is damaged: it yields more rows than fit into the file", table
            )
        yield batch


def _numbers(table: str, name: str, cells: Sequence[object]) -> Numbers:
    kinds = set(map(type, cells))
    if not kinds <= {int, type(None)}:
        odd = ", ".join(sorted(kind.__name__ for kind in kinds - {int, type(None)}))
        raise UnreadableTableError(
            f"column {name} of table {table} contains {odd} values instead of integers", table, name
        )
    if type(None) not in kinds:
        return Numbers(np.array(cells, np.int64))
    null = np.array([cell is None for cell in cells], bool)
    return Numbers(np.array([0 if cell is None else cell for cell in cells], np.int64), null)


def joined(pieces: list[Numbers]) -> Numbers:
    """Concatenate the pieces; empties the list, to free its memory."""
    values = np.concatenate([np.empty(0, np.int64), *(piece.values for piece in pieces)])
    nulls = [_mask(piece) for piece in pieces] if any(p.null is not None for p in pieces) else []
    pieces.clear()
    return Numbers(values, np.concatenate(nulls) if nulls else None)


def _mask(piece: Numbers) -> Mask:
    return np.zeros(len(piece), bool) if piece.null is None else piece.null


class _Coder:
    """Assigns codes to texts that arrive in batches."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._codes: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []

    def add(self, cells: Sequence[object]) -> None:
        codes = [-1 if cell is None else self._code(cell) for cell in cells]
        self._codes.append(np.array(codes, np.int32))

    def _code(self, cell: object) -> int:
        text = lenient_text(cell) if isinstance(cell, bytes) else str(cell)
        return self._index.setdefault(text, len(self._index))

    def texts(self) -> Texts:
        values = np.array([*self._index, None], object)[:-1]
        return Texts(np.concatenate([np.empty(0, np.int32), *self._codes]), values)


# Columns of a table that grow as its pages are decoded chunk by chunk.
#
# An array has the smallest type that holds its values so far, and is not allocated while they are
# all equal: memory that is never written costs nothing.

_Types = tuple[np.dtype[Any], ...]
_NUMBERS: _Types = tuple(np.dtype(f"i{size}") for size in (1, 2, 4, 8))
_CODES: _Types = (np.dtype("i4"),)
_LIMITS = {t: (int(np.iinfo(t).min), int(np.iinfo(t).max)) for t in _NUMBERS}


class DeclinedError(Exception):
    """The page decoder cannot read this table; sqlite3 must."""


@record
class Piece:
    """A column of one chunk, with its minimum and maximum; valid until the next chunk is decoded.

    `values` of a text column are codes, −1 for NULL, into `texts`: the distinct texts as stored, in
    order of appearance.
    """

    values: Array
    null: Mask | None
    least: int
    greatest: int
    texts: packed_texts.PackedTexts | None = None

    def __len__(self) -> int:
        return len(self.values)


class _Growing:
    """A growing array with spare capacity."""

    def __init__(self, types: _Types) -> None:
        self._types = types
        self._array: Array | None = None
        self._constant = 0
        self._rows = 0

    def add(
        self, values: Array | int, count: int, least: int, greatest: int, expected: int
    ) -> None:
        """Append values in [`least`, `greatest`]; `expected` estimates the final number of rows."""
        end = self._rows + count
        if not self._rows:
            self._constant = least
        if self._array is not None or not self._constant == least == greatest:
            array = self._array = self._with_room(end, least, greatest, expected)
            array[self._rows : end] = values
        self._rows = end

    def _with_room(self, end: int, least: int, greatest: int, expected: int) -> Array:
        old = self._array
        wanted = self._type_of(least, greatest)
        if old is not None and end <= len(old) and wanted.itemsize <= old.itemsize:
            return old
        now = self._type_of(self._constant, self._constant) if old is None else old.dtype
        # Unused capacity is never touched: it takes address space but no memory.
        new = np.empty(max(end, expected) * 9 // 8, max(now, wanted, key=lambda t: t.itemsize))
        new[: self._rows] = self._constant if old is None else old[: self._rows]
        return new

    def _type_of(self, least: int, greatest: int) -> np.dtype[Any]:
        limits = ((t, *_LIMITS[t]) for t in self._types)
        return next(t for t, low, high in limits if low <= least and greatest <= high)

    def collected(self) -> Array:
        """All values; a `constant` if they are all equal."""
        if self._array is None:
            dtype = self._type_of(self._constant, self._constant)
            return constant(self._constant, self._rows, dtype)
        return self._array[: self._rows]


class NumberColumn:
    """Whole numbers of all chunks so far."""

    def __init__(self) -> None:
        self._values = _Growing(_NUMBERS)
        self._null: _Growing | None = None
        self._rows = 0

    def add(self, piece: Piece, expected: int) -> None:
        """Append a copy of the piece; `expected` estimates the final number of rows."""
        self._values.add(piece.values, len(piece), piece.least, piece.greatest, expected)
        if piece.null is not None and self._null is None:
            self._null = _Growing(_NUMBERS)
            self._null.add(0, self._rows, 0, 0, expected)
        if self._null is not None:
            null = np.zeros(len(piece), bool) if piece.null is None else piece.null
            self._null.add(null, len(piece), int(null.all()), int(null.any()), expected)
        self._rows += len(piece)

    def collected(self) -> Numbers:
        """All values, in the smallest type that holds them."""
        null = None if self._null is None else self._null.collected().view(bool)
        return Numbers(self._values.collected(), null)


class TextColumn:
    """Texts of all chunks so far, each stored once."""

    def __init__(self) -> None:
        self._codes = _Growing(_CODES)
        self._numbers = packed_texts.TextNumbers()

    def add(self, piece: Piece, expected: int) -> None:
        """Append a copy of the piece; `expected` estimates the final number of rows.

        Raises DeclinedError for texts crafted to have equal hashes.
        """
        places = np.empty(0, np.int32)
        if piece.texts:
            try:
                places = self._numbers.of(piece.texts)
            except packed_texts.CollidingTextsError as error:
                raise DeclinedError(str(error)) from error
        codes = np.append(places, np.int32(-1))[piece.values]
        greatest = len(self._numbers) - 1 if piece.texts else -1
        self._codes.add(codes, len(piece), -1, greatest, expected)

    def collected(self) -> Texts:
        """All texts; distinct values are in order of appearance."""
        codes, texts = self._codes.collected(), self._numbers.distinct()
        if texts.is_utf8:
            return packed_texts.PackedTextColumn(codes, texts)
        # Two damaged texts may be equal once decoded: `map` merges them.
        values = lenient_texts(texts.raw())
        return Texts(codes, object_array(values)).map(values)
