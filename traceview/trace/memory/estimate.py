"""Memory that the report of a file needs, estimated from its size or its tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from traceview.errors import TraceFormatError
from traceview.outputs import ARCHIVE_SUFFIXES, unpacked_name
from traceview.trace.memory.requirement import (
    JSON_RATIO,
    PROGRAM_BYTES,
    needed_bytes,
    row_counts,
    text_bytes,
)
from traceview.trace.sqlite.file import opened

# Bytes of memory per byte of the file: 2.5 for an SQLite export (3.6 M rows in 220 MB). xz makes
# recordings 10 times smaller, gzip and zstd 6 times; a .nsys-rep exports to 5 times its size. gzip
# makes JSON 15 times smaller.
_SQLITE, _REPORT = 2.5, 12.0
_UNPACKED = {".xz": 10.0, ".gz": 6.0, ".zst": 6.0}
_UNPACKED_JSON = 15.0
_HEADER_BYTES = 100


def estimated_bytes(path: Path) -> int:
    """Peak memory of a report of this file; that of an empty file if it cannot be read."""
    suffix = Path(unpacked_name(path)).suffix
    try:
        size = path.stat().st_size
        if suffix == ".sqlite" and path.suffix not in ARCHIVE_SUFFIXES and size > _HEADER_BYTES:
            return _of_tables(path)
        return PROGRAM_BYTES + round(size * _per_byte(path, suffix))
    except (OSError, TraceFormatError, sqlite3.Error):
        # `load` reports what is wrong with the file.
        return PROGRAM_BYTES


def _of_tables(path: Path) -> int:
    with opened(path) as database:
        counts = row_counts(database)
        return needed_bytes(counts) + text_bytes(database, counts)


def _per_byte(path: Path, suffix: str) -> float:
    if suffix == ".json":
        return JSON_RATIO * (_UNPACKED_JSON if path.suffix in ARCHIVE_SUFFIXES else 1)
    plain = _SQLITE if suffix == ".sqlite" else _REPORT
    return plain * _UNPACKED.get(path.suffix, 1)
