"""Whether a report of a trace fits into memory, told before the machine swaps.

A report holds the columns of all events at once. How many there are, SQLite tells without reading
them, by the last row number of a table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from traceview.errors import TooLargeError
from traceview.trace.free_memory import Free, free_memory
from traceview.trace.sqlite_file import Database

EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUDA_CALLCHAINS",
    "NVTX_EVENTS",
    "GPU_METRICS",
    "SCHED_EVENTS",
)
# Peak of a whole report, beside what the program itself takes, by row of EVENTS: see
# docs/performance.md for the traces it was measured on.
BYTES_A_ROW = 180
PROGRAM_BYTES = 60_000_000
# Damaged files may tell any number of rows; a row of any of these tables takes more than this.
_LEAST_ROW_BYTES = 20
ALL_THE_SAME = "TRACEVIEW_IGNORE_MEMORY"


def check_fits(database: Database, shown: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise TooLargeError if a report of the open trace needs more memory than there is."""
    rows = row_count(database)
    needed = needed_bytes(rows)
    # No machine is that small, and a small trace need not wait for what it is asked.
    if needed < 2 * PROGRAM_BYTES or environment.get(ALL_THE_SAME):
        return
    free = free_memory()
    if free is not None and needed > free.size_bytes:
        raise _too_large(shown, rows, needed, free)


def row_count(database: Database) -> int:
    """Rows of the tables of events: exact unless somebody deleted some."""
    most = database.size // _LEAST_ROW_BYTES
    return min(sum(database.last_row(table) for table in EVENTS), most)


def needed_bytes(rows: int) -> int:
    """Memory that the whole report of a trace with so many events takes at its peak."""
    return PROGRAM_BYTES + BYTES_A_ROW * rows


def _too_large(shown: str, rows: int, needed: int, free: Free) -> TooLargeError:
    return TooLargeError(
        f"a report of {shown} does not fit into memory: its {rows:,} events need about "
        f"{needed / 1e9:.1f} GB, and {free.size_bytes / 1e9:.1f} GB are free {free.bound}",
        f"read it on a machine with {_machine_gb(needed)} GB, or record less: nsys profile "
        "--duration=SECONDS, or --capture-range=cudaProfilerApi around a few steps "
        f"({ALL_THE_SAME}=1 reads it all the same)",
    )


def _machine_gb(needed: int) -> int:
    """The least power of two of GB that leaves a machine a quarter for itself."""
    return 1 << max(int(needed / 0.75e9), 1).bit_length()
