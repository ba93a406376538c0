"""The scanner of events, events.c: as decode_events, without Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_char_p, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address
from traceview.records import record
from traceview.tables import Array, Integers
from traceview.tables.packed_texts import TextNumbers
from traceview.trace.kineto.events import check_length

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
