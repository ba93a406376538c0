"""TRACEVIEW_RUN: versions, command line and machine of a recorded run, in the trace itself."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import RecordingError

if TYPE_CHECKING:
    from sqlite_utils import Database


# Open a database with sqlite-utils, to add tables to it.


def export_database(path: Path) -> Database:
    """Open an export of nsys, or a trace of ours. Raises sqlite3.Error if it is damaged."""
    return _imported()(path)


@cache
def _imported() -> type[Database]:
    # Imported late: it takes 0.1 s, which reading a trace should not pay.
    with _without_pandas():
        from sqlite_utils import Database
    return Database


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep sqlite-utils from importing pandas, which takes 0.4 s, just for its timestamps.

    Does nothing if either is imported already or other threads might import them. Afterwards
    sqlite-utils leaves sys.modules again, so that a later import of it is complete.
    """
    if {"pandas", "sqlite_utils"} & sys.modules.keys() or threading.active_count() > 1:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
        for name in [each for each in sys.modules if each.partition(".")[0] == "sqlite_utils"]:
            del sys.modules[name]


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
