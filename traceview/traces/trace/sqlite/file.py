"""An SQLite file of the user: opened read-only, without long waits for locks.

While a `Database` is open, sqlite3 holds its read lock, so that no other program can change the
pages under the page decoder.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from traceview.base.errors import TraceFormatError
from traceview.base.records import record
from traceview.traces.trace.sqlite.page_reader import PageFile, read_pages
from traceview.traces.trace.sqlite.row_reader import (
    Columns,
    DeclinedError,
    Kind,
    UnreadableTableError,
    lenient_text,
    quoted,
    read_rows,
)

PATIENCE_S = 2.0
WAL_FORMAT = 2
# SQLite's mark of a generated column that is computed when read.
_VIRTUAL = 2
# Begins what a check says of a damaged b-tree.
_DAMAGED_TREE = "*** in database main ***"


@record
class StoredTable:
    """Location and columns of a table in the file."""

    root_page: int
    columns: tuple[str, ...]
    # Index of each column in a record; virtual generated columns have none.
    places: Mapping[str, int]
    # Columns whose record cell is not their value: rowid aliases and generated columns.
    unstored: frozenset[str]


class Database:
    """The tables of an open file, read column by column; `read_ahead` reads some in a thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        pages: PageFile | None,
        size: int,
        thread: Executor | None = None,
    ) -> None:
        self._connection = connection
        self._pages = pages
        self.size = size
        self._thread = thread
        self._ahead: dict[tuple[str, ...], Future[Columns]] = {}
        found = connection.execute(
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchall()
        self.tables: Mapping[str, int] = {str(name): int(root) for name, root in found}
        self._described: dict[str, StoredTable] = {}

    def describe(self, table: str) -> StoredTable:
        """The columns of an existing table."""
        if table not in self._described:
            listed = self._connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
            held = [str(row[1]) for row in listed if row[6] != _VIRTUAL]
            self._described[table] = StoredTable(
                self.tables[table],
                tuple(str(row[1]) for row in listed),
                {name: place for place, name in enumerate(held)},
                frozenset(str(row[1]) for row in listed if row[6] or row[5]),
            )
        return self._described[table]

    def read_ahead(self, table: str, wanted: Mapping[str, Kind]) -> None:
        """Queue the decoding of columns in the thread; `read` of the same ones returns them."""
        pages = self._page_reading(table, wanted)
        if pages and self._thread:
            self._ahead[(table, *wanted)] = self._thread.submit(pages)

    def read(self, table: str, wanted: Mapping[str, Kind]) -> Columns:
        """Read the wanted columns, in table order, by the fastest way the file allows.

        Raises UnreadableTableError if the table is damaged or holds values of other types,
        TraceFormatError if it lacks a column.
        """
        begun = self._ahead.pop((table, *wanted), None)
        pages = begun.result if begun else self._page_reading(table, wanted)
        try:
            if pages:
                try:
                    return pages()
                except DeclinedError:
                    pass
            self._check(table)
            return read_rows(self._connection, table, wanted, self.size)
        except sqlite3.DatabaseError as error:
            if not _corrupt(error):
                raise
            raise _damaged_table(table) from error

    def _check(self, table: str) -> None:
        """Have SQLite check the b-tree of a table, for a tenth of the time it takes to read it.

        Of a damaged one it reads some rows twice and others not at all, without an error. Raises
        UnreadableTableError.
        """
        found = self._connection.execute(f"PRAGMA quick_check({quoted(table)})").fetchone()
        # Of a sound b-tree, a NULL in a column that allows none is no damage.
        if found and str(found[0]).startswith(_DAMAGED_TREE):
            raise _damaged_table(table)

    def _page_reading(self, table: str, wanted: Mapping[str, Kind]) -> Callable[[], Columns] | None:
        """A function that decodes the pages of a table; None if only sqlite3 can read them."""
        stored = self.describe(table)
        lacking = [name for name in wanted if name not in stored.columns]
        if lacking:
            raise TraceFormatError(
                f"table {table} has no column {', '.join(lacking)}", "record the program again"
            )
        if not self._pages or stored.unstored.intersection(wanted):
            return None
        places = {name: stored.places[name] for name in wanted}
        return partial(read_pages, self._pages, stored.root_page, places, wanted)

    def last_row(self, table: str) -> int:
        """The greatest row number, found without reading the rows; 0 if there is none.

        Raises sqlite3.Error if the table is damaged.
        """
        if table not in self.tables or "rowid" in map(str.lower, self.describe(table).columns):
            return 0
        try:
            cursor = self._connection.execute(f"SELECT max(rowid) FROM {quoted(table)}")  # noqa: S608
        except sqlite3.OperationalError:
            # A WITHOUT ROWID table.
            return 0
        return max(cursor.fetchone()[0] or 0, 0)

    def lines(self, table: str, names: Sequence[str]) -> list[tuple[object, ...]]:
        """A small table as tuples; a missing column is None, a missing table has no rows.

        Raises sqlite3.Error if the table is damaged.
        """
        if table not in self.tables:
            return []
        return self._connection.execute(self._chosen(table, names)).fetchall()

    def lines_of(
        self, table: str, names: Sequence[str], wanted: Mapping[str, Sequence[int]]
    ) -> list[tuple[object, ...]]:
        """As `lines`, only the rows whose columns have one of the `wanted` values, in table order.

        Raises sqlite3.Error if the table is damaged.
        """
        tests = (f"{quoted(name)} IN ({', '.join('?' * len(v))})" for name, v in wanted.items())
        chosen = f"{self._chosen(table, names)} WHERE {' AND '.join(tests)}"
        values = [value for some in wanted.values() for value in some]
        return self._connection.execute(chosen, values).fetchall()

    def _chosen(self, table: str, names: Sequence[str]) -> str:
        columns = set(self.describe(table).columns)
        listed = ", ".join(quoted(name) if name in columns else "NULL" for name in names)
        return f"SELECT {listed} FROM {quoted(table)}"  # noqa: S608

    def spread(self, table: str, names: Sequence[str], most: int) -> list[tuple[object, ...]]:
        """Evenly spaced rows of a table, in the form of `lines`; deleted ones are left out.

        Raises sqlite3.Error if the table is damaged.
        """
        last = self.last_row(table)
        if not last:
            return []
        rows = sorted({1 + (last - 1) * place // most for place in range(most)})
        marks = ", ".join("?" * len(rows))
        chosen = f"{self._chosen(table, names)} WHERE rowid IN ({marks})"
        return self._connection.execute(chosen, rows).fetchall()

    def lookup(self, table: str, key: str, value: str, keys: Sequence[int]) -> dict[int, object]:
        """The values of some keys, looked up by the primary key if the table has one.

        Raises sqlite3.Error if the table is damaged.
        """
        chosen = f"SELECT {quoted(key)}, {quoted(value)} FROM {quoted(table)}"  # noqa: S608
        if key not in self.describe(table).unstored:
            wanted = set(keys)
            return {k: v for k, v in self._connection.execute(chosen) if k in wanted}
        values: dict[int, object] = {}
        for first in range(0, len(keys), 500):
            some = keys[first : first + 500]
            marks = ", ".join("?" * len(some))
            rows = self._connection.execute(f"{chosen} WHERE {quoted(key)} IN ({marks})", some)
            values.update(rows.fetchall())
        return values


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open an SQLite file, whose header has been checked, read-only.

    Raises TraceFormatError if another program is writing it, or if it is damaged; every
    sqlite3.Error that leaves the `with` block becomes one, too.
    """
    with ExitStack() as stack:
        try:
            yield _database(path, stack)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # sqlite3 raises UnicodeDecodeError if its message quotes a damaged name.
            raise _damaged(error) from error


def _damaged(error: Exception) -> TraceFormatError:
    if _busy(error):
        return TraceFormatError(
            f"another program is writing the file ({error})", "try again when it has finished"
        )
    reason = " ".join(str(error).split())[:200]
    return TraceFormatError(f"SQLite cannot read the file ({reason})", "export the recording again")


def _busy(error: Exception) -> bool:
    code = str(getattr(error, "sqlite_errorname", ""))
    return code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _damaged_table(table: str) -> UnreadableTableError:
    # Without SQLite's reasons: of the same damage it gives others from run to run.
    return UnreadableTableError(f"table {table} is damaged, as SQLite finds", table)


def _corrupt(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_CORRUPT")


def _database(path: Path, stack: ExitStack) -> Database:
    if _holds_data(path, "-wal"):
        return _copied(path, stack)
    # Opened first to be closed last: closing any descriptor of a file drops all locks of this
    # process on it, including those of the connection.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    stack.callback(os.close, descriptor)
    try:
        # A WAL database without a log is complete, but opening it normally would create one.
        still = "&immutable=1" if _header(path)[19] == WAL_FORMAT else ""
        uri = f"file:{quote(os.fsencode(path))}?mode=ro{still}"
        connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)
        stack.callback(connection.close)
        _prepare(connection)
    except sqlite3.OperationalError as error:
        # A leftover journal: only a copy may be rolled back.
        if _busy(error) or not _holds_data(path, "-journal"):
            raise
        return _copied(path, stack)
    pages = None if _holds_data(path, "-journal") else PageFile.of(descriptor)
    thread = ThreadPoolExecutor(1)
    # Ends before the descriptor is closed.
    stack.callback(thread.shutdown, cancel_futures=True)
    return Database(connection, pages, path.stat().st_size, thread)


def has_log(path: Path) -> bool:
    """Whether a journal or write-ahead log next to the file holds part of its content."""
    return _holds_data(path, "-wal") or _holds_data(path, "-journal")


def _holds_data(path: Path, suffix: str) -> bool:
    beside = path.with_name(path.name + suffix)
    return beside.exists() and beside.stat().st_size > 0


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _copied(path: Path, stack: ExitStack) -> Database:
    """Open a private copy of a file and its log."""
    from shutil import copyfile
    from tempfile import TemporaryDirectory

    folder = Path(stack.enter_context(TemporaryDirectory(prefix="traceview-")))
    size = 0
    for suffix in ("", "-wal", "-journal"):
        if suffix == "" or _holds_data(path, suffix):
            copy = folder / f"trace.sqlite{suffix}"
            copyfile(path.with_name(path.name + suffix), copy)
            size += copy.stat().st_size
    connection = sqlite3.connect(folder / "trace.sqlite", isolation_level=None)
    stack.callback(connection.close)
    _prepare(connection)
    return Database(connection, None, size)


def _prepare(connection: sqlite3.Connection) -> None:
    connection.text_factory = lenient_text
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
