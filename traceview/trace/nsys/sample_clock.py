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
    by_pid: dict[int, int] = {}
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    for table in {"PROCESSES"} & tables:
        rows = connection.execute(f"SELECT globalPid FROM {table}")  # noqa: S608
        by_pid |= {process_of(each): each for (each,) in rows if isinstance(each, int)}
    return by_pid


def sample_clock(connection: sqlite3.Connection, owner: int) -> SampleClock | None:
    """The clock of process `owner` (globalPid): from its marks, else from the recording's start.

    None if the export has neither.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    marks: list[tuple[str, int]] = []
    if "NVTX_EVENTS" in tables:
        marks = connection.execute(
            "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId)) AS mark, start "
            "FROM NVTX_EVENTS WHERE globalTid >> 24 = ? AND mark LIKE ? ORDER BY start",
            (owner >> 24, f"{CLOCK}%"),
        ).fetchall()
    known = [(int(text.removeprefix(CLOCK)), start) for text, start in marks]
    if not known and "TARGET_INFO_SESSION_START_TIME" in tables:
        rows = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        known = [(began, 0) for (began,) in rows if isinstance(began, int)][:1]
    return SampleClock(*np.array(known, np.int64).T) if known else None
