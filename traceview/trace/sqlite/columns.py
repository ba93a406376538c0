"""Columns of a table that grow as its pages are decoded chunk by chunk.

An array has the smallest type that holds its values so far, and is not allocated while they are all
equal: memory that is never written costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceview.records import record
from traceview.tables import Array, Mask, Texts, constant, object_array
from traceview.tables.packed_texts import (
    CollidingTextsError,
    PackedTextColumn,
    PackedTexts,
    TextNumbers,
)
from traceview.trace.sqlite.row_reader import Numbers, lenient_texts

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
    texts: PackedTexts | None = None

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
        self._numbers = TextNumbers()

    def add(self, piece: Piece, expected: int) -> None:
        """Append a copy of the piece; `expected` estimates the final number of rows.

        Raises DeclinedError for texts crafted to have equal hashes.
        """
        places = np.empty(0, np.int32)
        if piece.texts:
            try:
                places = self._numbers.of(piece.texts)
            except CollidingTextsError as error:
                raise DeclinedError(str(error)) from error
        codes = np.append(places, np.int32(-1))[piece.values]
        greatest = len(self._numbers) - 1 if piece.texts else -1
        self._codes.add(codes, len(piece), -1, greatest, expected)

    def collected(self) -> Texts:
        """All texts; distinct values are in order of appearance."""
        codes, texts = self._codes.collected(), self._numbers.distinct()
        if texts.is_utf8:
            return PackedTextColumn(codes, texts)
        # Two damaged texts may be equal once decoded: `map` merges them.
        values = lenient_texts(texts.raw())
        return Texts(codes, object_array(values)).map(values)
