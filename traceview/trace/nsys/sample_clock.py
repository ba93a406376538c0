"""The clock of samples taken inside the program, and its processes, in an nsys export."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np

from traceview.tables import Integers
from traceview.trace.nsys.cpu.sync_sites import CLOCK
from traceview.trace.nsys.processes import process_of


class SampleClock(NamedTuple):
    """Times of the day of one process, and the times on the timeline at those moments."""

    of_day_ns: Integers
    on_timeline_ns: Integers

    def timeline_ns(self, of_day_ns: Integers) -> Integers:
        """Times of the day on the timeline; beyond the known moments the offset stays."""
        offset = self.of_day_ns - self.on_timeline_ns
        # Relative to the first: floats do not hold the nanoseconds of an epoch.
        drift = np.interp(
            of_day_ns - self.of_day_ns[0], self.of_day_ns - self.of_day_ns[0], offset - offset[0]
        )
        result: Integers = of_day_ns - offset[0] - np.rint(drift).astype(np.int64)
        return result


def global_pids(connection: sqlite3.Connection) -> dict[int, int]:
    """globalPid by process id, of the processes in the export."""
    found: dict[int, int] = {}
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    for table in {"PROCESSES"} & tables:
        rows = connection.execute(f"SELECT globalPid FROM {table}")  # noqa: S608
        found |= {process_of(each): each for (each,) in rows if isinstance(each, int)}
    return found


def sample_clock(connection: sqlite3.Connection, owner: int) -> SampleClock | None:
    """By the marks of the process, else by the time of the day at which the recording began."""
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
