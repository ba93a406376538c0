"""Conversion from wall-clock time, of samples taken in the program, to the clock of an export."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np

from traceview.tables import Integers
from traceview.trace.nsys.processes import process_of
from traceview.trace.nsys.sync_sites import CLOCK


class SampleClock(NamedTuple):
    """Wall-clock times of one process, and the times on the timeline at the same moments."""

    of_day_ns: Integers
    on_timeline_ns: Integers

    def timeline_ns(self, of_day_ns: Integers) -> Integers:
        """Wall-clock times converted to the timeline; beyond the known moments the offset stays."""
        offset = self.of_day_ns - self.on_timeline_ns
        # Relative to the first time: floats cannot hold nanoseconds since 1970.
        drift = np.interp(
            of_day_ns - self.of_day_ns[0], self.of_day_ns - self.of_day_ns[0], offset - offset[0]
        )
        result: Integers = of_day_ns - offset[0] - np.rint(drift).astype(np.int64)
        return result


def global_pids(connection: sqlite3.Connection) -> dict[int, int]:
    """The globalPid of each process in the export, by process id."""
    if not _has(connection, "PROCESSES"):
        return {}
    rows = connection.execute("SELECT globalPid FROM PROCESSES")
    return {process_of(pid): pid for (pid,) in rows if isinstance(pid, int)}


def _has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def sample_clock(connection: sqlite3.Connection, owner: int) -> SampleClock | None:
    """The clock of process `owner` (globalPid): from its marks, else from the recording's start.

    None if the export has neither.
    """
    marks: list[tuple[str, int]] = []
    if _has(connection, "NVTX_EVENTS"):
        marks = connection.execute(
            "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId)) AS mark, start "
            "FROM NVTX_EVENTS WHERE globalTid >> 24 = ? AND mark LIKE ? ORDER BY start",
            (owner >> 24, f"{CLOCK}%"),
        ).fetchall()
    known = [(int(text.removeprefix(CLOCK)), start) for text, start in marks]
    if not known and _has(connection, "TARGET_INFO_SESSION_START_TIME"):
        rows = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        known = [(began, 0) for (began,) in rows if isinstance(began, int)][:1]
    return SampleClock(*np.array(known, np.int64).T) if known else None
