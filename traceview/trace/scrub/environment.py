"""Remove the environment of the recorded program from an export that stays with its user."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from traceview.errors import TraceFormatError
from traceview.trace.scrub.facts import public_variable
from traceview.trace.scrub.secrets import REMOVED, is_environment

_NAMED = (("META_DATA_CAPTURE", "%ENVIRONMENT%"), ("TARGET_INFO_SYSTEM_ENV", "%Environment%"))


def remove_environment(export: Path) -> None:
    """Remove environment variables from an export of nsys, in place; the ranks in them stay.

    Raises TraceFormatError if SQLite cannot change the file.
    """
    try:
        with closing(sqlite3.connect(export)) as connection, connection:
            connection.text_factory = bytes
            # Freed bytes are overwritten, and no journal keeps them.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = MEMORY")
            for table, names in _NAMED:
                if _has(connection, table):
                    chosen = f"SELECT rowid, value FROM {table} WHERE name LIKE ?"  # noqa: S608
                    rows = connection.execute(chosen, (names,)).fetchall()
                    texts = ((row, value.decode(errors="replace")) for row, value in rows if value)
                    update = f"UPDATE {table} SET value = ? WHERE rowid = ?"  # noqa: S608
                    connection.executemany(
                        update, [(public_variable(text), row) for row, text in texts]
                    )
            _remove_blocks(connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            # Whoever reads the file says so.
            return
        what = f"SQLite cannot read the export of nsys ({error})"
        raise TraceFormatError(what, "export the recording again") from error


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    )


def _remove_blocks(connection: sqlite3.Connection) -> None:
    """Remove the texts that are whole environments: variables that end with NUL."""
    if _has(connection, "StringIds"):
        chosen = "SELECT id, value FROM StringIds WHERE instr(CAST(value AS BLOB), x'00') > 0"
        blocks = [row for row, value in connection.execute(chosen) if is_environment(value)]
        update = "UPDATE StringIds SET value = ? WHERE id = ?"
        connection.executemany(update, [(REMOVED.decode(), row) for row in blocks])
