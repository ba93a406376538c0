"""TRACEVIEW_RUN: what a recording notes of its run, in the file itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from traceview.errors import RecordingError

TABLE = "TRACEVIEW_RUN"


def write_run(database: Path, facts: Mapping[str, str]) -> None:
    """Add the table of facts, name to value, in place of one that may be there.

    Raises RecordingError if the file is no sound database.
    """
    # Imported late: it takes a third of a second, which reading a trace should not pay.
    from sqlite_utils import Database

    rows = [{"name": name, "value": value} for name, value in facts.items()]
    store = Database(database)
    try:
        with closing(store.conn):
            table = store.table(TABLE)
            table.create({"name": str, "value": str}, pk="name", replace=True)
            table.insert_all(rows)
    except sqlite3.Error as error:
        what = f"nsys exported what SQLite cannot read ({error})"
        raise RecordingError(what, "traceview doctor tries the export") from error
