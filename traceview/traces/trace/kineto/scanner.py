"""The scanner of events, events.c, without Python objects, and scanning by several threads."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import Structure, c_char_p, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial
from typing import BinaryIO

import numpy as np

from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.records import record
from traceview.base.stages import stage
from traceview.base.tables import Array, Integers
from traceview.base.tables.packed_texts import TextNumbers
from traceview.traces.trace.kineto.events import check_length

MOST_EVENTS = (1 << 16) - 24
"""Most rows of a table, and most events left to Python, in one scan. It is no power of two, because
columns a power of two apart would compete for the same cache sets."""
LEAST_BYTES = 32
"""An event that becomes a row is longer than this: each of its fields has a key."""
_COLUMNS = 17
_TABLES = 7


class ScanStop(IntEnum):
    """Why a scan ended."""

    NEEDS_MORE, ENDED, IS_FULL, IS_ODD = range(4)


class ScannedTable(IntEnum):
    """The tables that are scanned; all have the columns start, end, name and thread."""

    KERNELS, COPIES, SETS, CALLS, OPERATORS, ANNOTATIONS, PYTHON = range(_TABLES)


Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class ScannedTexts:
    """The names of each table, and the threads, as written in the file, by a scanner's number."""

    names: Sequence[list[bytes]]
    threads: list[bytes]


@record
class Scan:
    """Some events of a text, in the order of the file.

    `columns` has an array per table, with a row per column; names and threads are numbers of
    `texts`. `others` are the spans of events left to Python. `details` are table, row and span of
    events whose other arguments Python reads.
    """

    end: int
    stopped: ScanStop
    events: int
    columns: Sequence[Integers]
    texts: ScannedTexts
    others: Sequence[Span]
    details: Sequence[tuple[ScannedTable, int, Span]]


class _CScan(Structure):
    _fields_ = (
        ("text", c_char_p),
        ("bytes", c_int64),
        ("limit", c_int64),
        ("at", c_int64),
        ("stopped", c_int64),
        ("events", c_int64),
        ("most_rows", c_int64),
        ("rows", c_int64 * _TABLES),
        ("columns", c_void_p * _TABLES),
        ("names", c_void_p * _TABLES),
        ("threads", c_void_p),
        ("others", c_int64),
        ("other_spans", c_void_p),
        ("details", c_int64),
        ("detail_spans", c_void_p),
    )


class EventScanner:
    """Scans texts one after the other, and numbers names and threads across all of them."""

    def __init__(self) -> None:
        self._columns = [np.empty((_COLUMNS, MOST_EVENTS), np.int64) for _ in ScannedTable]
        self._others = np.empty((MOST_EVENTS, 2), np.int64)
        self._details = np.empty((MOST_EVENTS, 4), np.int64)
        self._names = [TextNumbers() for _ in ScannedTable]
        self._threads = TextNumbers()
        self._texts = ScannedTexts([[] for _ in ScannedTable], [])
        self._scan = _CScan(
            most_rows=MOST_EVENTS,
            columns=(c_void_p * _TABLES)(*map(address, self._columns)),
            names=(c_void_p * _TABLES)(*(each.address for each in self._names)),
            threads=self._threads.address,
            other_spans=address(self._others),
            detail_spans=address(self._details),
        )

    def scan_all(self, text: bytes, at: int, limit: int) -> list[Scan]:
        """Scans of the events between two offsets, up to what the scanner cannot read."""
        scans, stopped = [], ScanStop.IS_FULL
        while stopped == ScanStop.IS_FULL:
            scan = self.scan(text, at, limit)
            at, stopped = scan.end, scan.stopped
            scans.append(scan)
        return scans

    def scan(self, text: bytes, at: int, limit: int) -> Scan:
        """Scan events from `at`, where an event begins or may follow, up to `limit`."""
        scan, numbered = self._scan, (*self._names, self._threads)
        most = min(MOST_EVENTS, (limit - at) // LEAST_BYTES + 1)
        for each in numbered:
            each.make_room(most, limit - at + most)
        scan.text, scan.bytes, scan.limit, scan.at = text, len(text), limit, at
        library.call("traceview_scan_events", scan)
        check_length(scan.events, scan.at - at)
        for each, known in zip(numbered, (*self._texts.names, self._texts.threads), strict=True):
            known += each.since(len(known))
        details = self._details[: scan.details].tolist()
        return Scan(
            end=scan.at,
            stopped=ScanStop(scan.stopped),
            events=scan.events,
            columns=[
                _rows(columns, count)
                for columns, count in zip(self._columns, scan.rows, strict=True)
            ],
            texts=self._texts,
            others=[(start, end) for start, end in self._others[: scan.others].tolist()],
            details=[
                (ScannedTable(table), row, (start, end)) for table, row, start, end in details
            ],
        )


def _rows(columns: Array, count: int) -> Integers:
    """A copy of the filled rows, because the next scan reuses the columns."""
    return columns[:, :count].copy()


# Speculative scanning of a text in blocks, by several threads.
#
# A block is cut where an event seems to begin; but what looks like one may lie in a string or in
# the arguments of another event, which only the blocks before can show. So every block is scanned
# as if it began with an event. The first one does; and if the events of a block end exactly where
# the next block begins, that block does, too. The consumer takes the blocks in order and checks
# this; where it fails, it joins the two blocks and scans them again.

THREADS = 2


@dataclass(eq=False)
class Block:
    """The part of a text up to `end`; the text behind `end` is the beginning of the next block.

    If `source` is a function, the thread that scans the block calls it to read the text.
    """

    source: bytes | Callable[[], bytes]
    seeming_end: int | None = None
    scans: Future[list[Scan]] | None = None

    @cached_property
    def text(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source()

    @property
    def end(self) -> int:
        return len(self.text) if self.seeming_end is None else self.seeming_end

    @property
    def content(self) -> bytes:
        return self.text[: self.end]


class BlockScanner:
    """Scans blocks ahead in several threads, and wrongly cut ones again in the caller's thread."""

    def __init__(self) -> None:
        self._free = [EventScanner() for _ in range(THREADS)]

    def ahead(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the blocks in order, while the next ones are being scanned."""
        waiting: deque[Block] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            for block in blocks:
                block.scans = pool.submit(self._scan, block)
                waiting.append(block)
                if len(waiting) > THREADS:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()

    def scans(self, block: Block, at: int) -> Sequence[Scan]:
        """The scans from offset `at` on, where an event begins, up to what cannot be scanned."""
        if at == 0 and block.scans:
            return block.scans.result()
        return self._own.scan_all(block.text, at, block.end)

    def _scan(self, block: Block) -> list[Scan]:
        # No more blocks are scanned at a time than there are scanners.
        scanner = self._free.pop()
        try:
            return scanner.scan_all(block.text, 0, block.end)
        finally:
            self._free.append(scanner)

    @cached_property
    def _own(self) -> EventScanner:
        return EventScanner()


BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*(?=\{)")
_CUT_BYTES = 1 << 12


def blocks_of_file(file: BinaryIO, start: int, most: int) -> Iterator[Block]:
    """The text from offset `start` on, in blocks of up to `most` bytes cut where events begin."""
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    while start < size:
        stage("Reading the trace", start, size)
        end = _cut(descriptor, start, min(start + most, size))
        yield Block(partial(_text, descriptor, start, end))
        start = end


def _cut(descriptor: int, start: int, end: int) -> int:
    """Offset at which the last event in [start, end) seems to begin; `end` if none does."""
    size = _CUT_BYTES
    while True:
        at = max(end - size, start)
        if cuts := [match.end() for match in BETWEEN_EVENTS.finditer(_text(descriptor, at, end))]:
            return at + cuts[-1]
        if at == start:
            return end
        size *= 8


def _text(descriptor: int, start: int, end: int) -> bytes:
    """The bytes [start, end) of a file; fewer if the file has become shorter."""
    text = os.pread(descriptor, end - start, start)
    while len(text) < end - start and (
        more := os.pread(descriptor, end - start - len(text), start + len(text))
    ):
        text += more
    return text
