"""Decode the rows of a few leaf pages at once, with numpy.

The reference for the decoder in C, pages.c: slower, and with hardly a line in common.

Rows of a table mostly share a handful of record headers, which give the type and so the length of
every column. Rows with equal headers have their columns at equal offsets: they are copied side by
side, and each column is then a plain strided array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask
from traceview.base.tables.packed_texts import PackedTexts
from traceview.traces.trace.sqlite.page_reader import Chunk, WantedColumn
from traceview.traces.trace.sqlite.row_reader import DeclinedError, Kind, Piece

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]
LEAF = 0x0D
LEAF_HEADER_BYTES = 8
# A cell takes 4 bytes or more and its pointer 2; a free block has a header of 4 bytes.
LEAST_CELL_BYTES, POINTER_BYTES, FREE_HEADER_BYTES = 4, 2, 4
MOST_HEADER_BYTES = 127
# A row longer than the usable page minus this continues in overflow pages.
LOCAL_LESS_THAN_USABLE = 35
# With more distinct headers than this, decoding one by one is as fast.
FEW_GROUPS, ROWS_PER_GROUP = 64, 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


# Types of a column: NULL, integers of 1 to 8 bytes, a real number, the constants 0 and 1, two that
# are reserved; from 12 on blobs and texts take turns.
NULL_TYPE, ZERO_TYPE, ONE_TYPE, FIRST_TEXT_TYPE = 0, 8, 9, 13
INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
FIXED_BYTES = (0, *INTEGER_BYTES.values(), 8, 0, 0, -1, -1)


class RecordLayout:
    """Types and offsets of the columns of records with equal headers."""

    def __init__(self, header: bytes) -> None:
        self.types = list(_varints(header[1:]))
        self.starts = [len(header)]
        for kind in self.types:
            self.starts.append(self.starts[-1] + _length(kind))

    def end(self, places: Sequence[int]) -> int:
        """Offset of the end of the last of these columns."""
        if max(places) >= len(self.types):
            raise DeclinedError("a row is older than a column and takes its default")
        return self.starts[max(places) + 1]


# Records of one table repeat their headers, and parsing one takes a Python step per column.
layout_of = lru_cache(maxsize=4096)(RecordLayout)


def _length(kind: int) -> int:
    if kind >= len(FIXED_BYTES):
        return (kind - len(FIXED_BYTES)) // 2
    if FIXED_BYTES[kind] < 0:
        raise DeclinedError("a type is reserved")
    return FIXED_BYTES[kind]


def _varints(raw: bytes) -> Iterator[int]:
    value = 0
    for place, byte in enumerate(raw):
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            yield value
            value = 0
        elif value >> 32 or place + 1 == len(raw):
            raise DeclinedError("a header does not end where it should")


@record
class _Cells:
    """Offset of each cell and of the end of its page; the number of cells of each page."""

    at: Rows
    page_ends: Rows
    counts: Rows


@record
class _Records:
    """Offset of each record, and its length including the header."""

    content: Bytes
    at: Rows
    size: Integers


def decode(chunk: Chunk, wanted: Sequence[WantedColumn]) -> list[Piece]:
    """The wanted columns of all rows, in order. Raises DeclinedError."""
    records = _records(chunk)
    columns = [_CellColumn(column.kind, len(records.at)) for column in wanted]
    places = [column.place for column in wanted]
    for rows in _alike_rows(records):
        layout = _common_layout(records, rows)
        side_by_side = _windows(records.content, layout.end(places))[records.at[rows]]
        for column, place in zip(columns, places, strict=True):
            start, end = layout.starts[place : place + 2]
            column.fill(rows, side_by_side, layout.types[place], start, end)
    return [column.collected() for column in columns]


def _records(chunk: Chunk) -> _Records:
    cells = _cells(chunk)
    size, at = _payload_sizes(chunk.content, cells.at)
    row, at = _row_numbers(chunk.content, at)
    if (size > chunk.usable_bytes - LOCAL_LESS_THAN_USABLE).any():
        raise DeclinedError("a row reaches into overflow pages")
    if (at + size > cells.page_ends).any():
        raise DeclinedError("a row lies outside its page")
    if (row[1:] <= row[:-1]).any():
        raise DeclinedError("rows are out of order")
    taken = np.maximum(at + size - cells.at, LEAST_CELL_BYTES)
    first = np.cumsum(cells.counts) - cells.counts
    for start, bytes_taken in zip(chunk.starts, np.add.reduceat(taken, first), strict=True):
        page = chunk.content[start : start + chunk.usable_bytes]
        check_space(page, LEAF_HEADER_BYTES, int(bytes_taken))
    return _Records(chunk.content, at, size)


def _cells(chunk: Chunk) -> _Cells:
    content, starts = chunk.content, chunk.starts
    if (content[starts] != LEAF).any():
        raise DeclinedError("a page is not a table leaf")
    counts = _big_endian_2(content, starts + 3)
    # Only the root of a table may be empty, and that one is not decoded.
    if not counts.all():
        raise DeclinedError("a page has no rows")
    if (counts > most_cells(LEAF_HEADER_BYTES, chunk.usable_bytes)).any():
        raise DeclinedError("a page holds more cells than fit")
    page = np.repeat(starts, counts)
    within = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = _big_endian_2(content, page + 8 + 2 * within)
    if (offset < np.repeat(8 + 2 * counts, counts)).any() or (offset >= chunk.usable_bytes).any():
        raise DeclinedError("a cell lies outside its page")
    return _Cells(page + offset, page + chunk.usable_bytes, counts)


def most_cells(header_bytes: int, usable_bytes: int) -> int:
    """The number of the shortest cells that fill a page."""
    return (usable_bytes - header_bytes) // (LEAST_CELL_BYTES + POINTER_BYTES)


def check_space(page: Bytes, header_bytes: int, taken: int) -> None:
    """Check that the cells, which take that many bytes, and the free space fill a page.

    Raises DeclinedError: cells that overlap, or some that the header does not count.
    """
    cells, first = _word(page, 3), _word(page, 5) or 1 << 16
    if first < header_bytes + POINTER_BYTES * cells:
        raise DeclinedError("cells begin within the header of their page")
    if first + taken + int(page[7]) + _free_bytes(page, first) != len(page):
        raise DeclinedError("cells and free space do not fill a page")


def _free_bytes(page: Bytes, end: int) -> int:
    """Bytes in the free blocks of a page, each of which leads to the next one."""
    total, at = 0, _word(page, 1)
    while at:
        if at < end or at > len(page) - FREE_HEADER_BYTES:
            raise DeclinedError("a free block lies outside its page")
        total, end, at = total + _word(page, at + 2), at + FREE_HEADER_BYTES, _word(page, at)
    return total


def _word(page: Bytes, at: int) -> int:
    return int(page[at]) << 8 | int(page[at + 1])


def _big_endian_2(content: Bytes, at: Rows) -> Rows:
    return (content.take(at).astype(np.intp) << 8) | content.take(at + 1)


def _payload_sizes(content: Bytes, at: Rows) -> tuple[Integers, Rows]:
    """The varint at each offset, and the offset after it. Raises DeclinedError above 3 bytes."""
    size = np.zeros(len(at), np.int64)
    more = np.ones(len(at), bool)
    for _ in range(3):
        byte = content.take(at)
        size = np.where(more, (size << 7) | (byte & 0x7F), size)
        at = at + more
        more &= byte >= 0x80
        if not more.any():
            return size, at
    raise DeclinedError("a row is longer than a page")


def _row_numbers(content: Bytes, at: Rows) -> tuple[Integers, Rows]:
    """The varint of up to 9 bytes at each offset, and the offset after it."""
    number = np.zeros(len(at), np.int64)
    more = np.ones(len(at), bool)
    for place in range(9):
        byte = content.take(at)
        longer = (number << 8) | byte if place == 8 else (number << 7) | (byte & 0x7F)
        number = np.where(more, longer, number)
        at = at + more
        more &= byte >= 0x80
        if not more.any():
            break
    return number, at


def _alike_rows(records: _Records) -> Iterator[Rows]:
    """Group the rows by equal headers."""
    sizes = records.content.take(records.at)
    if (sizes > MOST_HEADER_BYTES).any() or (sizes > records.size).any():
        raise DeclinedError("a header is longer than expected")
    groups = 0
    for size in np.flatnonzero(np.bincount(sizes)).tolist():
        rows = np.flatnonzero(sizes == size)
        words = _words(_windows(records.content, max(size, 1))[records.at[rows]])
        for group in _equal_words(words):
            groups += 1
            if groups > FEW_GROUPS + len(sizes) // ROWS_PER_GROUP:
                raise DeclinedError("hardly any two rows share a layout")
            yield rows[group]


def _windows(content: Bytes, width: int) -> Bytes:
    """A view whose row i is the `width` bytes from i on."""
    return np.ndarray((len(content) - width + 1, width), np.uint8, content, 0, (1, 1))


def _words(rows: Bytes) -> Words:
    """Each row as 64-bit words, the last one zero-padded."""
    count, width = rows.shape
    padded = np.zeros((count, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = rows
    return padded.view(np.uint64)


def _hashed(words: Words) -> Words:
    mixed = np.zeros(len(words), np.uint64)
    for column in range(words.shape[1]):
        mixed = (mixed ^ words[:, column]) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _equal_words(words: Words) -> Iterator[Rows]:
    if (words == words[0]).all():
        yield np.arange(len(words))
        return
    # Sorting 16 bits is far faster than 64; headers with equal hashes are separated below.
    key = (_hashed(words) * _MIX >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    for group in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        if (words[group] == words[group[0]]).all():
            yield group
            continue
        _, inverse = np.unique(words[group], axis=0, return_inverse=True)
        for number in range(int(inverse.max()) + 1):
            yield group[inverse.ravel() == number]


def _common_layout(records: _Records, rows: Rows) -> RecordLayout:
    """The layout of rows whose headers are equal."""
    first = int(records.at[rows[0]])
    header = records.content[first : first + int(records.content[first])].tobytes()
    layout = layout_of(header)
    if (records.size[rows] != layout.starts[-1]).any():
        raise DeclinedError("a row is not as long as its header says")
    return layout


class _CellColumn:
    """One wanted column, filled group by group."""

    def __init__(self, kind: Kind, count: int) -> None:
        self._kind = kind
        self._values = np.empty(count, np.int64 if kind == "integer" else np.int32)
        self._null: Mask | None = None
        self._index: dict[bytes, int] = {}

    def fill(self, rows: Rows, records: Bytes, kind: int, start: int, end: int) -> None:
        """Copy this column from some rows, whose records lie side by side."""
        if self._kind == "text":
            self._values[rows] = self._codes(records, kind, start, end)
        elif kind == NULL_TYPE:
            self._nulls()[rows] = True
            self._values[rows] = 0
        else:
            self._values[rows] = _integers(records, kind, start)

    def _nulls(self) -> Mask:
        if self._null is None:
            self._null = np.zeros(len(self._values), bool)
        return self._null

    def _codes(
        self, records: Bytes, kind: int, start: int, end: int
    ) -> npt.NDArray[np.int32] | int:
        if kind == NULL_TYPE:
            return -1
        if kind < FIRST_TEXT_TYPE or kind % 2 == 0:
            raise DeclinedError("a text column holds something else")
        if start == end:
            return self._code(b"")
        first, inverse = _distinct(_words(records[:, start:end]))
        codes = [self._code(records[row, start:end].tobytes()) for row in first.tolist()]
        return np.array(codes, np.int32)[inverse]

    def _code(self, raw: bytes) -> int:
        return self._index.setdefault(raw, len(self._index))

    def collected(self) -> Piece:
        values = self._values
        least, greatest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if self._kind == "text":
            codes, texts = _by_appearance(values, list(self._index))
            return Piece(codes, None, least, greatest, PackedTexts.of(texts))
        return Piece(values, self._null, least, greatest)


def _by_appearance(codes: Array, texts: Sequence[bytes]) -> tuple[Array, list[bytes]]:
    """Renumber the texts in order of appearance, as reading with sqlite3 does."""
    backward = np.flatnonzero(codes >= 0)[::-1]
    first = np.empty(len(texts), np.intp)
    first[codes[backward]] = backward
    order = np.argsort(first)
    places = np.full(len(texts) + 1, -1, np.int32)
    places[order] = np.arange(len(texts))
    return places[codes], [texts[code] for code in order.tolist()]


def _distinct(words: Words) -> tuple[Rows, Rows]:
    """A row with each distinct text, and for each row the index of its text."""
    _, first, inverse = np.unique(_hashed(words), return_index=True, return_inverse=True)
    if not (words == words[first[inverse]]).all():
        _, first, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _integers(records: Bytes, kind: int, start: int) -> Integers | int:
    """Big-endian integers of 1, 2, 3, 4, 6 or 8 bytes, or a constant."""
    if kind in (ZERO_TYPE, ONE_TYPE):
        return kind - ZERO_TYPE
    if kind not in INTEGER_BYTES:
        raise DeclinedError("a column of integers holds something else")
    width = INTEGER_BYTES[kind]
    # numpy has no 3- or 6-byte integers: read 4 or 8 bytes, which begin before the value.
    whole = 1 << (width - 1).bit_length()
    extra = whole - width
    strided = np.ndarray(
        (len(records),), f">i{whole}", records, start - extra, (records.strides[0],)
    )
    values = strided.astype(np.int64)
    if extra:
        unwanted = 8 * (8 - width)
        values <<= unwanted
        values >>= unwanted
    return values
