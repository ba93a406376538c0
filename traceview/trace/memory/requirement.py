"""Whether a report of a trace fits into memory, told before the machine swaps.

A report holds the columns of all events at once. How many there are, SQLite tells without reading
them, by the last row number of a table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from traceview.errors import TooLargeError
from traceview.tables import MOST_ROWS
from traceview.trace.memory.available import Free, free_memory
from traceview.trace.sqlite.file import Database

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
BYTES_A_ROW = 150
# Of tables that are looked up or added up, and joined with nothing, at times in no order.
BYTES_A_ROW_OF = {"CUDA_CALLCHAINS": 80, "GPU_METRICS": 60, "SCHED_EVENTS": 90}
# Of each text that only one range has, and so are its path and its pattern: emit_nvtx of PyTorch
# numbers every operation.
BYTES_A_TEXT, BYTES_A_CHARACTER = 1_000, 6
PROGRAM_BYTES = 60_000_000
_SAMPLE = 500
# Damaged files may tell any number of rows; a row of any of these tables takes more than this.
_LEAST_ROW_BYTES = 10
ALL_THE_SAME = "TRACEVIEW_IGNORE_MEMORY"
_LESS = "nsys profile --duration=SECONDS, or --capture-range=cudaProfilerApi around a few steps"


def check_fits(database: Database, shown: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise TooLargeError if a report of the open trace needs more memory than there is.

    So too where its rows have no numbers in 32 bits: see tables.row_numbers.
    """
    counts = row_counts(database)
    rows = sum(counts.values())
    if rows > MOST_ROWS:
        what = f"{shown} holds {rows:,} events: no more than {MOST_ROWS:,} are told apart"
        raise TooLargeError(what, f"record less: {_LESS}")
    needed = needed_bytes(counts) + text_bytes(database, counts)
    # No machine is that small, and a small trace need not wait for what it is asked.
    if needed < 2 * PROGRAM_BYTES or environment.get(ALL_THE_SAME):
        return
    free = free_memory()
    if free is not None and needed > free.size_bytes:
        raise _too_large(shown, rows, needed, free)


def row_counts(database: Database) -> dict[str, int]:
    """Rows of each table of events: exact unless somebody deleted some."""
    left = database.size // _LEAST_ROW_BYTES
    counts = {}
    for table in EVENTS:
        counts[table] = min(database.last_row(table), left)
        left -= counts[table]
    return counts


def needed_bytes(counts: Mapping[str, int]) -> int:
    """Memory that the whole report of a trace with so many events takes at its peak."""
    rows = ((BYTES_A_ROW_OF.get(table, BYTES_A_ROW), count) for table, count in counts.items())
    return PROGRAM_BYTES + sum(each * count for each, count in rows)


def text_bytes(database: Database, counts: Mapping[str, int]) -> int:
    """Memory for texts of ranges that occur once, as many as a sample lets expect."""
    sample = database.spread("NVTX_EVENTS", ("text", "textId"), _SAMPLE)
    once = [cells for cells, times in Counter(sample).items() if times == 1]
    # A short table takes little in any case; and of a few, most are merely rare.
    if len(sample) < _SAMPLE or len(once) < _SAMPLE / 4:
        return 0
    each = [BYTES_A_TEXT + BYTES_A_CHARACTER * len(str(text or "")) for text, _ in once]
    return counts["NVTX_EVENTS"] * sum(each) // len(sample)


def _too_large(shown: str, rows: int, needed: int, free: Free) -> TooLargeError:
    return TooLargeError(
        f"a report of {shown} does not fit into memory: its {rows:,} events need about "
        f"{needed / 1e9:.1f} GB, and {free.size_bytes / 1e9:.1f} GB are free {free.bound}",
        f"read it on a machine with {_machine_gb(needed)} GB, or record less: {_LESS} "
        f"({ALL_THE_SAME}=1 reads it all the same)",
    )


def _machine_gb(needed: int) -> int:
    """The least power of two of GB that leaves a machine a quarter for itself."""
    return 1 << max(int(needed / 0.75e9), 1).bit_length()
