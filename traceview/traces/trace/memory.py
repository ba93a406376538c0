"""Memory that the report of a file needs, estimated before anything is read."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from traceview.base.errors import TooLargeError, TraceFormatError
from traceview.base.memory import Free, free_memory
from traceview.base.outputs import ARCHIVE_SUFFIXES, unpacked_name
from traceview.base.tables import MOST_ROWS
from traceview.traces.trace.sqlite.file import Database, opened

# Memory that a report of a trace needs, estimated before anything is read.
#
# A report holds the columns of all events at once. Their number comes from the last row number of
# each table, which SQLite finds without reading the rows.

# Peak memory of a report per row of a table of events, beyond PROGRAM_BYTES, between that of the
# terminal and that of the HTML page: see docs/performance.md for the traces it was measured on.
# Names in lower case are tables of stored traces, from any recorder.
BYTES_PER_ROW = {
    **dict.fromkeys(("CUPTI_ACTIVITY_KIND_KERNEL", "kernels"), 320),
    **dict.fromkeys(("CUPTI_ACTIVITY_KIND_RUNTIME", "api_calls"), 105),
    **dict.fromkeys(("NVTX_EVENTS", "ranges"), 85),
    **dict.fromkeys(("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"), 150),
    **dict.fromkeys(("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "copies", "sets"), 150),
    **dict.fromkeys(("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "native_samples"), 150),
    **dict.fromkeys(("python_samples", "python_frames"), 150),
    # Rows that are only looked up or summed.
    "CUDA_CALLCHAINS": 80,
    "GPU_METRICS": 60,
    "SCHED_EVENTS": 90,
    "OSRT_API": 60,
    **dict.fromkeys(("SAMPLING_CALLCHAINS", "OSRT_CALLCHAINS"), 120),
}
# Per range name that occurs once, with its path and pattern: PyTorch's emit_nvtx numbers every op.
BYTES_PER_TEXT, BYTES_PER_CHARACTER = 100, 2
PROGRAM_BYTES = 60_000_000
# Bytes of memory per byte of JSON: 0.3 to read it, and as much again for the report.
JSON_RATIO = 0.6
_SAMPLE = 500
# Damaged files may claim any number of rows; each takes more than this in the file.
_LEAST_ROW_BYTES = 10
IGNORE_MEMORY = "TRACEVIEW_IGNORE_MEMORY"
_LESS = "nsys profile --duration=SECONDS, or --capture-range=cudaProfilerApi around a few steps"


def check_fits(database: Database, shown: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise TooLargeError if a report of the open trace needs more memory than is free.

    Also raise it if the trace has more rows than 32-bit row numbers allow: see tables.row_numbers.
    """
    counts = row_counts(database)
    rows = sum(counts.values())
    if rows > MOST_ROWS:
        what = f"{shown} has {rows:,} events, but at most {MOST_ROWS:,} are supported"
        raise TooLargeError(what, f"record less: {_LESS}")
    needed = needed_bytes(counts)
    # The most memory that range names can take: as if all of the file were names.
    most = needed + (counts["NVTX_EVENTS"] * BYTES_PER_TEXT + database.size * BYTES_PER_CHARACTER)
    # Every machine has this much memory, and small traces should not wait for the check.
    if most < 2 * PROGRAM_BYTES or environment.get(IGNORE_MEMORY):
        return
    free = free_memory()
    if free is None or most <= free.size_bytes:
        return
    needed += text_bytes(database, counts)
    if needed > free.size_bytes:
        raise _too_large(shown, f"{rows:,} events", needed, free, f"record less: {_LESS}")


def check_json_fits(size: int, read: int, shown: str) -> None:
    """Raise TooLargeError if a report of `size` bytes of torch.profiler JSON needs too much memory.

    `read` bytes of it have been read already: the memory of their events is taken.
    """
    needed = PROGRAM_BYTES + round(JSON_RATIO * size - JSON_RATIO / 2 * read)
    if needed < 2 * PROGRAM_BYTES or os.environ.get(IGNORE_MEMORY):
        return
    free = free_memory()
    if free is not None and needed > free.size_bytes:
        less = "record fewer steps: see schedule(active=)"
        raise _too_large(shown, f"{size / 1e9:.1f} GB of JSON", needed, free, less)


def _too_large(shown: str, what: str, needed: int, free: Free, less: str) -> TooLargeError:
    # The smallest power of two, in GB, of which the report needs at most three quarters.
    machine = 1 << max(int(needed / 0.75e9), 1).bit_length()
    return TooLargeError(
        f"a report of {shown} does not fit into memory: its {what} need about "
        f"{needed / 1e9:.1f} GB, and {free.size_bytes / 1e9:.1f} GB are free {free.bound}",
        f"use a machine with {machine} GB, or {less} ({IGNORE_MEMORY}=1 skips this check)",
    )


def row_counts(database: Database) -> dict[str, int]:
    """Rows of each event table; an upper bound if rows were deleted."""
    left = database.size // _LEAST_ROW_BYTES
    counts = {}
    for table in BYTES_PER_ROW:
        try:
            counts[table] = min(database.last_row(table), left)
        except sqlite3.DatabaseError:
            # Damaged: whoever reads it says so, or leaves it out.
            counts[table] = 0
        left -= counts[table]
    return counts


def needed_bytes(counts: Mapping[str, int]) -> int:
    """Peak memory in bytes of a full report with this many events per table."""
    return PROGRAM_BYTES + sum(BYTES_PER_ROW[table] * count for table, count in counts.items())


def text_bytes(database: Database, counts: Mapping[str, int]) -> int:
    """Memory in bytes for range names that occur once, extrapolated from a sample."""
    sample = database.spread("NVTX_EVENTS", ("text", "textId"), _SAMPLE)
    once = [cells for cells, times in Counter(sample).items() if times == 1]
    # Short tables need little; and few unique names in the sample are merely rare ones.
    if len(sample) < _SAMPLE or len(once) < _SAMPLE / 4:
        return 0
    sizes = [BYTES_PER_TEXT + BYTES_PER_CHARACTER * len(str(text or "")) for text, _ in once]
    return counts["NVTX_EVENTS"] * sum(sizes) // len(sample)


# Memory that the report of a file needs, estimated from its size or its tables.

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
            with opened(path) as database:
                counts = row_counts(database)
                return needed_bytes(counts) + text_bytes(database, counts)
        if suffix == ".json":
            per_byte = JSON_RATIO * (_UNPACKED_JSON if path.suffix in ARCHIVE_SUFFIXES else 1)
        else:
            plain = _SQLITE if suffix == ".sqlite" else _REPORT
            per_byte = plain * _UNPACKED.get(path.suffix, 1)
        return PROGRAM_BYTES + round(size * per_byte)
    except (OSError, TraceFormatError, sqlite3.Error):
        # `load` reports what is wrong with the file.
        return PROGRAM_BYTES
