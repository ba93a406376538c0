"""Columns of a table straight from the pages of the file, with numpy: fast, or not at all.

The format is that of https://www.sqlite.org/fileformat2.html. A table is a b-tree: interior pages
lead to leaf pages, whose cells hold one row each. The file is untrusted, and the sqlite3 module
stands behind this one: whatever is unusual or out of bounds raises DeclinedError, and sqlite3
decides what it means. Nothing here returns a row that SQLite would not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceview.tables import Texts, object_array
from traceview.trace.sqlite_cells import PAD, Bytes, Chunk, Coded, Wanted, decode
from traceview.trace.sqlite_layout import DeclinedError
from traceview.trace.sqlite_rows import Kind, Numbers, joined, lenient_text

__all__ = ["DeclinedError", "PageFile", "read_pages"]

Pages = npt.NDArray[np.int64]
HEADER_BYTES = 100
UTF8 = 1
INTERIOR = 0x05
INTERIOR_HEADER_BYTES = 12
MOST_LEVELS = 20
# Small enough that what is derived from a chunk stays in the processor's cache and in bounds.
CHUNK_BYTES = 4 << 20
THREADS = 2
# Beyond this much unwanted data between wanted pages, several reads are cheaper than one.
SPARSE = 2
_NOTHING = Numbers(np.empty(0, np.int64))


@dataclass(frozen=True)
class PageFile:
    """An open file, with what its header says of its pages."""

    descriptor: int
    page_bytes: int
    usable_bytes: int
    pages: int

    @classmethod
    def of(cls, descriptor: int) -> PageFile | None:
        """None where the header asks for more than is understood here."""
        header = os.pread(descriptor, HEADER_BYTES, 0)
        if len(header) < HEADER_BYTES or int.from_bytes(header[56:60], "big") != UTF8:
            return None
        stored = int.from_bytes(header[16:18], "big")
        size = 65536 if stored == 1 else stored
        if size < 512 or size & (size - 1) or header[20] > 32:
            return None
        return cls(descriptor, size, size - header[20], os.fstat(descriptor).st_size // size)

    def read(self, first: int, count: int) -> Bytes:
        """`count` pages from number `first` on, which counts from 1, and PAD bytes more.

        Raises DeclinedError if the file ends before them.
        """
        wanted = count * self.page_bytes
        content = np.empty(wanted + PAD, np.uint8)
        self._fill(content[:wanted], first)
        return content

    def read_runs(self, runs: Sequence[Pages]) -> Bytes:
        """Runs of neighbouring pages one after the other, and PAD bytes more."""
        content = np.empty(sum(map(len, runs)) * self.page_bytes + PAD, np.uint8)
        at = 0
        for run in runs:
            end = at + len(run) * self.page_bytes
            self._fill(content[at:end], int(run[0]))
            at = end
        return content

    def _fill(self, content: Bytes, first: int) -> None:
        found = os.preadv(self.descriptor, [content.data], (first - 1) * self.page_bytes)
        if found != len(content):
            raise DeclinedError("the file ends within a page")


def read_pages(
    file: PageFile, root: int, places: Mapping[str, int], wanted: Mapping[str, Kind]
) -> dict[str, Numbers | Texts]:
    """Read columns, given by their places in a record, of the table with that root page.

    Raises DeclinedError where sqlite3 has to read the table.
    """
    columns = [Wanted(places[name], kind) for name, kind in wanted.items()]
    leaves = _leaves(file, root)
    per_chunk = max(1, CHUNK_BYTES // file.page_bytes)
    parts = [leaves[at : at + per_chunk] for at in range(0, len(leaves), per_chunk)]
    with ThreadPoolExecutor(THREADS) as pool:
        chunks = list(pool.map(lambda part: decode(_gathered(file, part), columns), parts))
        whole = pool.map(lambda at: _assembled(chunks, at), range(len(columns)))
        return dict(zip(wanted, whole, strict=True))


def _leaves(file: PageFile, root: int) -> Pages:
    """The leaf pages in the order of their rows."""
    level = np.array([root], np.int64)
    for _ in range(MOST_LEVELS):
        _check_pages(file, level)
        first = file.read(int(level[0]), 1)
        if first[0] != INTERIOR:
            return level
        level = np.concatenate([_children(file, int(page)) for page in level])
    raise DeclinedError("the b-tree is too deep")


def _check_pages(file: PageFile, level: Pages) -> None:
    if not len(level) or level.min() < 2 or level.max() > file.pages:
        raise DeclinedError("a page number is out of bounds")
    if len(np.unique(level)) != len(level):
        raise DeclinedError("a page turns up twice")


def _children(file: PageFile, page: int) -> Pages:
    content = file.read(page, 1)
    cells = int(content[3]) << 8 | int(content[4])
    if content[0] != INTERIOR or INTERIOR_HEADER_BYTES + 2 * cells > file.usable_bytes:
        raise DeclinedError("an interior page is not one")
    pointers = content[INTERIOR_HEADER_BYTES:][: 2 * cells].view(">u2").astype(np.int64)
    if len(pointers) and pointers.max() + 4 > file.usable_bytes:
        raise DeclinedError("a cell lies outside its page")
    left = content[pointers[:, None] + np.arange(4)].view(">u4")[:, 0]
    return np.append(left.astype(np.int64), int(content[8:12].view(">u4")[0]))


def _gathered(file: PageFile, pages: Pages) -> Chunk:
    """The pages of one chunk, read in few calls."""
    first, last = int(pages.min()), int(pages.max())
    if last - first < SPARSE * len(pages):
        content = file.read(first, last - first + 1)
        return Chunk(content, (pages - first) * file.page_bytes, file.usable_bytes)
    runs = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1)
    starts = np.arange(len(pages)) * file.page_bytes
    return Chunk(file.read_runs(runs), starts, file.usable_bytes)


def _assembled(chunks: Sequence[list[Numbers | Coded]], at: int) -> Numbers | Texts:
    """One column of all chunks; the chunks lose it, so that memory is held once."""
    numbers: list[Numbers] = []
    texts: list[Coded] = []
    for chunk in chunks:
        part, chunk[at] = chunk[at], _NOTHING
        (numbers if isinstance(part, Numbers) else texts).append(part)  # type: ignore[arg-type]
    return _texts(texts) if texts else joined(numbers)


def _texts(parts: Sequence[Coded]) -> Texts:
    # By text, not by bytes: two damaged texts may read the same.
    index: dict[str, int] = {}
    codes = []
    for part in parts:
        places = [index.setdefault(lenient_text(raw), len(index)) for raw in part.index]
        codes.append(np.array([*places, -1], np.int32)[part.codes])
    return Texts(np.concatenate(codes), object_array(list(index)))
