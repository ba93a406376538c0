"""The compiled reader of events, events.c: what decode_events does, without objects of Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_char_p, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address
from traceview.compiled.text_numbers import CompiledNumbers
from traceview.records import record
from traceview.tables import Array, Integers

MOST_EVENTS = (1 << 16) - 24
"""Rows of a table, and events left to Python, of one scan. Columns a power of two apart would share
places in the cache."""
LEAST_BYTES = 32
"""An event that becomes a row has more: each of its fields has a key."""
_COLUMNS = 17
_TABLES = 7
_FUNCTIONS = ("traceview_scan_events", "traceview_index_texts")


class ScanStop(IntEnum):
    """Why a scan ended."""

    NEEDS_MORE, ENDED, IS_FULL, IS_ODD = range(4)


class ScannedTable(IntEnum):
    """The tables that are scanned; what they share are start, end, name and thread."""

    KERNELS, COPIES, SETS, CALLS, OPERATORS, ANNOTATIONS, PYTHON = range(_TABLES)


Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class ScannedTexts:
    """The names of each table and the threads that a scanner has met, as written, by number."""

    names: Sequence[list[bytes]]
    threads: list[bytes]


@record
class Scan:
    """Some events of a text, in the order of the file.

    `columns` has the rows of each table, an array per column, in which names and threads are
    numbers of `texts`. The spans are those of events left to Python, and of events of which it
    reads more, with table and row.
    """

    end: int
    stopped: ScanStop
    events: int
    negative: int
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
        ("negative", c_int64),
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


def is_available() -> bool:
    """Whether the compiled reader is installed and not switched off."""
    return library.has(*_FUNCTIONS)


class EventScanner:
    """Scans texts one after the other, and numbers names and threads across them."""

    def __init__(self) -> None:
        self._columns = [np.empty((_COLUMNS, MOST_EVENTS), np.int64) for _ in ScannedTable]
        self._others = np.empty((MOST_EVENTS, 2), np.int64)
        self._details = np.empty((MOST_EVENTS, 4), np.int64)
        self._names = [CompiledNumbers() for _ in ScannedTable]
        self._threads = CompiledNumbers()
        self._texts = ScannedTexts([[] for _ in ScannedTable], [])
        self._scan = _CScan(
            most_rows=MOST_EVENTS,
            columns=(c_void_p * _TABLES)(*map(address, self._columns)),
            names=(c_void_p * _TABLES)(*(each.address for each in self._names)),
            threads=self._threads.address,
            other_spans=address(self._others),
            detail_spans=address(self._details),
        )

    def scan_all(self, text: bytes, limit: int) -> list[Scan]:
        """All events up to a limit that the scanner knows, as many at a time as there is room."""
        scans, at, stopped = [], 0, ScanStop.IS_FULL
        while stopped == ScanStop.IS_FULL:
            scan = self.scan(text, at, limit)
            at, stopped = scan.end, scan.stopped
            scans.append(scan)
        return scans

    def scan(self, text: bytes, at: int, limit: int) -> Scan:
        """The events from a place on, which is where one begins or may follow, up to a limit."""
        scan, numbered = self._scan, (*self._names, self._threads)
        most = min(MOST_EVENTS, (limit - at) // LEAST_BYTES + 1)
        for each in numbered:
            each.make_room(most, limit - at + most)
        scan.text, scan.bytes, scan.limit, scan.at = text, len(text), limit, at
        library.call("traceview_scan_events", ctypes.byref(scan))
        for each, known in zip(numbered, (*self._texts.names, self._texts.threads), strict=True):
            known += each.since(len(known))
        details = self._details[: scan.details].tolist()
        return Scan(
            end=scan.at,
            stopped=ScanStop(scan.stopped),
            events=scan.events,
            negative=scan.negative,
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
    """A copy, as the next scan fills the same columns."""
    return columns[:, :count].copy()
