"""TRACEVIEW_RUN: versions, command line and machine of a recorded run, in the trace itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from traceview.errors import RecordingError
from traceview.recorders.tables.export_database import export_database

TABLE = "TRACEVIEW_RUN"


def write_run(database: Path, facts: Mapping[str, str]) -> None:
    """Add the table of facts, name to value, replacing an existing one.

    Raises RecordingError if the database is damaged.
    """
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    store = export_database(database)
    try:
        with closing(store.conn):
            table = store.table(TABLE)
            table.create({"name": str, "value": str}, pk="name", replace=True)
            table.insert_all(rows)
    except sqlite3.Error as error:
        what = f"SQLite cannot read the export of nsys ({error})"
        raise RecordingError(what, "run traceview doctor to test the export") from error
