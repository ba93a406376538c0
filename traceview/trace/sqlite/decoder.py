"""The decoder of leaf pages, pages.c: the wanted columns of all rows of a few pages at once."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int64, c_void_p
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from traceview.compiled import library
from traceview.compiled.library import address
from traceview.records import record
from traceview.tables.packed_texts import Bytes, PackedTexts
from traceview.trace.sqlite.columns import DeclinedError, Piece
from traceview.trace.sqlite.row_reader import Kind

PAD = 160
"""Bytes after the last page that may be read, though never used."""


@record
class WantedColumn:
    """A column to decode, by its index in the record."""

    place: int
    kind: Kind


@record
class Chunk:
    """Pages in memory, with PAD bytes after the last, and the offset of each."""

    content: Bytes
    starts: npt.NDArray[np.intp]
    usable_bytes: int


class _CChunk(Structure):
    _fields_ = (
        ("content", c_void_p),
        ("bytes", c_int64),
        ("starts", c_void_p),
        ("pages", c_int64),
        ("usable_bytes", c_int64),
    )


class _CColumn(Structure):
    _fields_ = (
        ("place", c_int64),
        ("is_text", c_int64),
        ("values", c_void_p),
        ("null", c_void_p),
        ("nulls", c_int64),
        ("least", c_int64),
        ("greatest", c_int64),
        ("text_starts", c_void_p),
        ("text_bytes", c_void_p),
        ("texts", c_int64),
        ("slots", c_void_p),
        ("slot_count", c_int64),
    )


class _ColumnBuffers:
    """Buffers for one column of a chunk of at most `rows` rows."""

    def __init__(self, wanted: WantedColumn, rows: int) -> None:
        self.wanted = wanted
        self.values = np.empty(rows, np.int64)
        self.null = np.empty(rows, bool)
        if wanted.kind == "text":
            self.text_starts, self.text_bytes = np.empty((2, rows), np.int64)
            self.slots = np.empty(1 << (2 * rows).bit_length(), np.int32)

    def described(self) -> _CColumn:
        described = _CColumn(
            place=self.wanted.place, values=address(self.values), null=address(self.null)
        )
        if self.wanted.kind == "text":
            described.is_text = 1
            described.text_starts, described.text_bytes = (
                address(self.text_starts),
                address(self.text_bytes),
            )
            described.slots, described.slot_count = address(self.slots), len(self.slots)
        return described

    def piece(self, chunk: Chunk, column: _CColumn, rows: int) -> Piece:
        texts = self._texts(chunk, column.texts) if column.is_text else None
        null = self.null[:rows] if column.nulls and texts is None else None
        return Piece(self.values[:rows], null, column.least, column.greatest, texts)

    def _texts(self, chunk: Chunk, count: int) -> PackedTexts:
        return PackedTexts(chunk.content, self.text_starts[:count], self.text_bytes[:count])


class PageDecoder:
    """Decodes chunks into reused buffers: allocating new ones for each takes longer."""

    chunk_bytes: ClassVar = 1 << 20

    def __init__(self, wanted: Sequence[WantedColumn]) -> None:
        # The compiled code wants the columns in record order.
        self._order = sorted(range(len(wanted)), key=lambda column: wanted[column].place)
        self._wanted = wanted
        self._content = np.empty(0, np.uint8)
        self._most_rows = -1
        self._columns: Any = None

    def buffer(self, size: int) -> Bytes:
        """A buffer of `size` bytes to read into. Invalidates the pieces decoded before."""
        if size > len(self._content):
            self._content = np.empty(size, np.uint8)
        return self._content[:size]

    def decode(self, chunk: Chunk) -> list[Piece]:
        """The wanted columns of all rows, in order. Raises DeclinedError."""
        starts = np.ascontiguousarray(chunk.starts, np.int64)
        size = len(chunk.content) - PAD
        pages = _CChunk(
            address(chunk.content), size, address(starts), len(starts), chunk.usable_bytes
        )
        counted = c_int64()
        _call("traceview_count_rows", pages, counted)
        rows = counted.value
        self._make_room(rows)
        columns = self._columns
        _call("traceview_decode", pages, columns, len(columns), rows)
        pieces: dict[int, Piece] = {}
        for place, room, column in zip(self._order, self._rooms, columns, strict=True):
            pieces[place] = room.piece(chunk, column, rows)
        return [pieces[place] for place in range(len(pieces))]

    def _make_room(self, rows: int) -> None:
        if rows > self._most_rows:
            self._most_rows = rows + rows // 8
            self._rooms = [_ColumnBuffers(self._wanted[at], self._most_rows) for at in self._order]
            described = [room.described() for room in self._rooms]
            self._columns = (_CColumn * len(described))(*described)


def _call(name: str, *given: Any) -> None:
    reason = library.call(name, *given)
    if reason is not None:
        raise DeclinedError(reason)
