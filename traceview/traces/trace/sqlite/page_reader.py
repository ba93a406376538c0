"""Columns of a table decoded directly from the pages of the file, in C, or declined.

The format is that of https://www.sqlite.org/fileformat2.html. A table is a b-tree: interior pages
lead to leaf pages, whose cells hold one row each. The file is untrusted, and the sqlite3 module
is the fallback: whatever is unusual or out of bounds raises DeclinedError, and sqlite3 reads the
table instead. Nothing here returns a row that SQLite would not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import Structure, c_int64, c_void_p
from threading import Condition
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from traceview.base import groups
from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.records import record
from traceview.base.tables import Texts
from traceview.base.tables.packed_texts import Bytes, PackedTexts
from traceview.traces.trace.sqlite import row_reader

PAD = 160
"""Bytes after the last page that may be read, though never used."""


@record
class WantedColumn:
    """A column to decode, by its index in the record."""

    place: int
    kind: row_reader.Kind


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

    def piece(self, chunk: Chunk, column: _CColumn, rows: int) -> row_reader.Piece:
        texts = self._texts(chunk, column.texts) if column.is_text else None
        null = self.null[:rows] if column.nulls and texts is None else None
        return row_reader.Piece(self.values[:rows], null, column.least, column.greatest, texts)

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

    def decode(self, chunk: Chunk) -> list[row_reader.Piece]:
        """The wanted columns of all rows, in order. Raises DeclinedError."""
        starts = np.ascontiguousarray(chunk.starts, np.int64)
        size = len(chunk.content) - PAD
        pages = _CChunk(
            address(chunk.content), size, address(starts), len(starts), chunk.usable_bytes
        )
        counted = c_int64()
        _call("traceview_count_rows", pages, counted)
        rows = counted.value
        if rows > self._most_rows:
            self._most_rows = rows + rows // 8
            self._rooms = [_ColumnBuffers(self._wanted[at], self._most_rows) for at in self._order]
            described = [room.described() for room in self._rooms]
            self._columns = (_CColumn * len(described))(*described)
        columns = self._columns
        _call("traceview_decode", pages, columns, len(columns), rows)
        pieces: dict[int, row_reader.Piece] = {}
        for place, room, column in zip(self._order, self._rooms, columns, strict=True):
            pieces[place] = room.piece(chunk, column, rows)
        return [pieces[place] for place in range(len(pieces))]


def _call(name: str, *given: Any) -> None:
    reason = library.call(name, *given)
    if reason is not None:
        raise row_reader.DeclinedError(reason)


Pages = npt.NDArray[np.int64]
# First page and number of pages.
Run = tuple[int, int]
HEADER_BYTES = 100
UTF8 = 1
LEAF, INTERIOR = 0x0D, 0x05
INTERIOR_HEADER_BYTES = 12
# The number of a page, and that of a row of one byte.
LEAST_INTERIOR_CELL_BYTES = 5
# A cell takes 4 bytes or more and its pointer 2; a free block has a header of 4 bytes.
LEAST_CELL_BYTES, POINTER_BYTES, FREE_HEADER_BYTES = 4, 2, 4
MOST_LEVELS = 20
THREADS = 2
# Beyond this much unwanted data between wanted pages, several reads are cheaper than one.
SPARSE = 2


@record
class PageFile:
    """An open file and the page layout from its header."""

    descriptor: int
    page_bytes: int
    usable_bytes: int
    pages: int

    @classmethod
    def of(cls, descriptor: int) -> PageFile | None:
        """Read the header; None if it uses a feature that is not supported here."""
        header = os.pread(descriptor, HEADER_BYTES, 0)
        if len(header) < HEADER_BYTES or int.from_bytes(header[56:60], "big") != UTF8:
            return None
        stored = int.from_bytes(header[16:18], "big")
        size = 65536 if stored == 1 else stored
        if size < 512 or size & (size - 1) or header[20] > 32:
            return None
        return cls(descriptor, size, size - header[20], os.fstat(descriptor).st_size // size)

    def page(self, number: int) -> Bytes:
        """Read one page, counted from 1. Raises DeclinedError if the file is too short."""
        content = np.empty(self.page_bytes, np.uint8)
        self.read(content, [(number, 1)])
        return content

    def read(self, content: Bytes, runs: Sequence[Run]) -> None:
        """Read runs of pages into a buffer. Raises DeclinedError if the file is too short."""
        end = 0
        for first, count in runs:
            start, end = end, end + count * self.page_bytes
            at = (first - 1) * self.page_bytes
            if os.preadv(self.descriptor, [content[start:end].data], at) != end - start:
                raise row_reader.DeclinedError("the file ends within a page")


def read_pages(
    file: PageFile, root: int, places: Mapping[str, int], wanted: Mapping[str, row_reader.Kind]
) -> dict[str, row_reader.Numbers | Texts]:
    """Read columns, given by their index in a record, of the table with that root page.

    Raises DeclinedError if sqlite3 must read the table.
    """
    needed = [WantedColumn(places[name], kind) for name, kind in wanted.items()]
    reading = _TableReading(file, _leaves(file, root), needed)
    threads = min(THREADS, reading.chunks)
    if threads <= 1:
        reading.read_chunks()
    else:
        with ThreadPoolExecutor(threads) as pool:
            # All threads end before an error is raised: after a failure, waiting ones give up.
            for reader in [pool.submit(reading.read_chunks) for _ in range(threads)]:
                reader.result()
    return {name: column.collected() for name, column in zip(wanted, reading.columns, strict=True)}


class _TableReading:
    """The leaf pages of a table, decoded chunk by chunk by a few threads.

    The thread that decoded a chunk also appends it to the columns, in the order of the chunks,
    because the decoded chunk is in the cache of its core.
    """

    def __init__(self, file: PageFile, leaves: Pages, wanted: Sequence[WantedColumn]) -> None:
        self.columns = [
            row_reader.TextColumn() if w.kind == "text" else row_reader.NumberColumn()
            for w in wanted
        ]
        self._file, self._leaves, self._wanted = file, leaves, wanted
        self._chunk_pages = max(1, PageDecoder.chunk_bytes // file.page_bytes)
        self.chunks = -(-len(leaves) // self._chunk_pages)
        self._numbers = iter(range(self.chunks))
        self._appended = self._rows = 0
        self._turn = Condition()
        self._failed = False

    def read_chunks(self) -> None:
        """Read the next unread chunks until none is left. Raises DeclinedError."""
        decoder = PageDecoder(self._wanted)
        try:
            for number in self._numbers:
                first = number * self._chunk_pages
                pages = self._leaves[first : first + self._chunk_pages]
                pieces = decoder.decode(_gathered(self._file, pages, decoder))
                if not self._has_turn(number):
                    return
                self._append(pieces, first + len(pages))
                self._pass_turn()
        except BaseException:
            self._pass_turn(failed=True)
            raise

    def _has_turn(self, number: int) -> bool:
        """Wait until all chunks before this one are appended; False if one failed."""
        with self._turn:
            self._turn.wait_for(lambda: self._failed or self._appended == number)
        return not self._failed

    def _append(self, pieces: Sequence[row_reader.Piece], pages: int) -> None:
        self._rows += len(pieces[0])
        for column, piece in zip(self.columns, pieces, strict=True):
            column.add(piece, expected=self._rows * len(self._leaves) // pages)

    def _pass_turn(self, failed: bool = False) -> None:
        with self._turn:
            self._appended += 1
            self._failed |= failed
            self._turn.notify_all()


def _leaves(file: PageFile, root: int) -> Pages:
    """The leaf pages in row order; none of an empty table."""
    level = np.array([root], np.int64)
    for depth in range(MOST_LEVELS):
        if not len(level) or level.min() < 2 or level.max() > file.pages:
            raise row_reader.DeclinedError("a page number is out of bounds")
        if len(groups.different(level)) != len(level):
            raise row_reader.DeclinedError("a page occurs twice")
        first = file.page(int(level[0]))
        if first[0] != INTERIOR:
            is_empty = depth == 0 and first[0] == LEAF and not first[3:5].any()
            return level[:0] if is_empty else level
        level = np.concatenate([_children(file, int(page)) for page in level])
    raise row_reader.DeclinedError("the b-tree is too deep")


def _children(file: PageFile, page: int) -> Pages:
    content = file.page(page)[: file.usable_bytes]
    cells = int(content[3]) << 8 | int(content[4])
    if content[0] != INTERIOR:
        raise row_reader.DeclinedError("an interior page has the wrong type")
    if not 0 < cells <= _most_cells(file.usable_bytes):
        raise row_reader.DeclinedError("an interior page has no cells, or more than fit")
    pointers = content[INTERIOR_HEADER_BYTES:][: 2 * cells].view(">u2").astype(np.int64)
    # Bytes in the cells of an interior page: the number of a page and the varint of a row.
    numbers = pointers[:, None] + np.arange(4, 13)
    is_last = content.take(numbers, mode="clip") < 0x80
    is_last[:, -1] = True
    sizes = is_last.argmax(axis=1) + LEAST_INTERIOR_CELL_BYTES
    if (pointers + sizes > len(content)).any():
        raise row_reader.DeclinedError("a cell lies outside its page")
    _check_space(content, int(sizes.sum()))
    left = content[pointers[:, None] + np.arange(4)].view(">u4")[:, 0]
    return np.append(left.astype(np.int64), int(content[8:12].view(">u4")[0]))


def _most_cells(usable_bytes: int) -> int:
    """The number of the shortest cells that fill an interior page."""
    return (usable_bytes - INTERIOR_HEADER_BYTES) // (LEAST_CELL_BYTES + POINTER_BYTES)


def _check_space(page: Bytes, taken: int) -> None:
    """Check that the cells, which take that many bytes, and the free space fill an interior page.

    Raises DeclinedError: cells that overlap, or some that the header does not count.
    """
    cells, first = _word(page, 3), _word(page, 5) or 1 << 16
    if first < INTERIOR_HEADER_BYTES + POINTER_BYTES * cells:
        raise row_reader.DeclinedError("cells begin within the header of their page")
    if first + taken + int(page[7]) + _free_bytes(page, first) != len(page):
        raise row_reader.DeclinedError("cells and free space do not fill a page")


def _free_bytes(page: Bytes, end: int) -> int:
    """Bytes in the free blocks of a page, each of which leads to the next one."""
    total, at = 0, _word(page, 1)
    while at:
        if at < end or at > len(page) - FREE_HEADER_BYTES:
            raise row_reader.DeclinedError("a free block lies outside its page")
        total, end, at = total + _word(page, at + 2), at + FREE_HEADER_BYTES, _word(page, at)
    return total


def _word(page: Bytes, at: int) -> int:
    return int(page[at]) << 8 | int(page[at + 1])


def _gathered(file: PageFile, pages: Pages, decoder: PageDecoder) -> Chunk:
    """Read the pages of one chunk in few calls."""
    first, last = int(pages.min()), int(pages.max())
    if last - first < SPARSE * len(pages):
        runs, places = [(first, last - first + 1)], pages - first
    else:
        split = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1)
        runs, places = [(int(run[0]), len(run)) for run in split], np.arange(len(pages))
    content = decoder.buffer(sum(count for _, count in runs) * file.page_bytes + PAD)
    file.read(content, runs)
    return Chunk(content, places * file.page_bytes, file.usable_bytes)
