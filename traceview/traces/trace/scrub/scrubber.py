"""Copy a trace without private data.

An export of nsys contains every environment variable of the recorded program and of the recorder,
the program's output, host and user names, and absolute paths. The copy is a new file, into which
only the tables and columns of `kept` are written, and of their texts only what `texts` leaves.
Some values contain NUL bytes, at which the text functions of SQL stop, so texts are processed as
bytes in Python.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from traceview.base.errors import TraceFormatError
from traceview.base.outputs import check_trace_output
from traceview.base.records import record
from traceview.traces.trace import load
from traceview.traces.trace import stored as stored
from traceview.traces.trace.nsys import added_tables, export_info, nccl_calls
from traceview.traces.trace.scrub.facts import public_fact
from traceview.traces.trace.scrub.kept import KEPT, OF_SOURCE, PAIRS, STRINGS, Kept, TextKind
from traceview.traces.trace.scrub.secrets import CLEAN, PrivateTexts, PublicTexts, found_in
from traceview.traces.trace.scrub.texts import REMOVED, TextRules
from traceview.traces.trace.sqlite import file as sqlite_file
from traceview.traces.trace.sqlite.row_reader import quoted
from traceview.traces.trace.stored import TEXTS
from traceview.traces.trace.stored_writer import write_trace

Recognizer = Callable[[str], object]
# With enough rights, the recorder lists and samples all processes of the machine. Kept are the rows
# of those that other tables name, by their process.
_OF_THE_MACHINE = {
    "PROCESSES": "is_used(globalPid)",
    "ThreadNames": "is_used(globalTid)",
    "SCHED_EVENTS": "is_used(globalTid)",
    "COMPOSITE_EVENTS": "is_used(globalTid)",
    "SAMPLING_CALLCHAINS": "id IN (SELECT id FROM main.COMPOSITE_EVENTS)",
}
_CODE = (TextKind.PTX, TextKind.CUBIN)
# A text that several kinds of columns name is kept as the first of them.
_ORDER = (
    *(TextKind.KERNEL, TextKind.RANGE, TextKind.FUNCTION, TextKind.FILE, TextKind.SYMBOL),
    *(TextKind.MODULE, TextKind.CALL, TextKind.STACK, TextKind.WORDS, TextKind.MESSAGE),
    TextKind.SOURCE,
)


@record
class ScrubReport:
    """Number of values removed or changed, by category."""

    replaced: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.replaced.values())


def scrub(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    own: bool = False,
    is_known: Recognizer | None = None,
    environment: Mapping[bytes, bytes] = MappingProxyType({}),
) -> ScrubReport:
    """Write a copy of a trace without private data to `out`.

    Only what the analyses read is kept: numbers, the names of kernels, ranges, calls, functions and
    source files, and public words. Folders become `…`; home folders in names become `~`. An `own`
    trace stays with its user: paths, command line and lines of the program are kept, without home
    folders and values of environment variables. `environment` is that of the recorded program,
    where the trace does not hold it. With `is_known`, which recognizes the names of library
    kernels, all other names become pseudonyms, and the code of kernels is left out.

    A trace of torch.profiler becomes an SQLite file, as `convert` writes it. `out` is replaced as a
    whole or not at all; the source, which may be compressed (.gz, .xz, .zst), is not changed.
    Raises TraceFormatError if the source is not a trace, InputError if `out` cannot be written,
    OutputExistsError if it exists and not `force`.
    """
    check_trace_output(out, force=force, source=source)
    try:
        beside = out.absolute().parent
        with (
            tempfile.TemporaryDirectory(dir=beside, prefix=".traceview-") as work,
            _plain(source, Path(work)) as plain,
        ):
            clean = Path(work, "clean.sqlite")
            with sqlite_file.opened(plain) as database:
                if not stored.is_stored(database):
                    export_info.read_meta(database)
                schemas = nccl_calls.nccl_schemas(database)
            with closing(_connected(plain, clean)) as connection:
                private = found_in(connection, environment)
                texts = TextRules(private, own=own, is_known=is_known)
                counts = _Copying(connection, texts, private, schemas).run()
            clean.replace(out)
            return ScrubReport(dict(counts))
    except TraceFormatError as error:
        raise TraceFormatError(f"cannot scrub {source}: {error.what}", error.remedy) from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise TraceFormatError(f"cannot write {out}: {error}", "free space on it") from error
        what = f"cannot scrub {source}: SQLite cannot read it ({error})"
        raise TraceFormatError(what, "export the recording again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"cannot scrub {source} to {out}: {reason}"
        raise TraceFormatError(what, "check both paths") from error


@contextmanager
def _plain(source: Path, folder: Path) -> Iterator[Path]:
    """The trace as an SQLite file to attach; a copy in the private `folder` if it has a log."""
    copy = folder / "copy.sqlite"
    if load.is_json(source):
        write_trace(load.load_torch(source), copy)
        yield copy
        return
    with load.unpacked(source) as plain:
        if not sqlite_file.has_log(plain):
            yield plain
            return
        for suffix in ("", "-wal", "-journal"):
            part = plain.with_name(plain.name + suffix)
            if part.exists():
                own = copy.with_name(copy.name + suffix)
                own.touch(0o600)
                shutil.copyfile(part, own)
        yield copy


def _connected(plain: Path, clean: Path) -> sqlite3.Connection:
    """A connection to the new file, with the trace attached read-only as `source`."""
    with closing(sqlite3.connect(plain.absolute().as_uri() + "?mode=ro", uri=True)) as trace:
        (encoding,) = trace.execute("PRAGMA encoding").fetchone()
    connection = sqlite3.connect(clean, isolation_level=None, uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA encoding = '{encoding}'")
    # The file is new and becomes visible as a whole: nothing to recover.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("ATTACH ? AS source", (plain.absolute().as_uri() + "?mode=ro",))
    connection.text_factory = bytes
    return connection


class _Copying:
    """Copies one attached trace into the new file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        texts: TextRules,
        private: PrivateTexts,
        schemas: nccl_calls.Schemas,
    ) -> None:
        self._connection, self._texts = connection, texts
        self._private, self._schemas = private, schemas
        self._counts: Counter[str] = Counter()
        self._numbered: dict[TextKind, set[int]] = {}
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        self._encoding = "utf-8" if encoding == b"UTF-8" else encoding.decode().lower()
        listed = connection.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'")
        names = [name.decode(errors="replace") for (name,) in listed.fetchall()]
        self._tables = [name for name in names if not name.startswith("sqlite_")]

    def run(self) -> Counter[str]:
        self._connection.execute("BEGIN")
        for kind in TextKind:
            in_code = kind in (*_CODE, TextKind.PAYLOAD)
            kept = self._code_of(kind) if in_code else self._text_of(kind)
            self._connection.create_function(f"kept_{kind.name}", 1, kept)
        for table in self._in_order():
            self._copy(table)
        for table in filter(self._tables.__contains__, STRINGS):
            self._copy_strings(table)
        self._connection.execute("COMMIT")
        return +self._counts

    def _in_order(self) -> list[str]:
        """The kept tables, those of the machine last: what they keep depends on the others."""
        known = [name for name in self._tables if name in KEPT or name in PAIRS]
        others = [name for name in self._tables if name not in (*known, *STRINGS)]
        self._counts["tables"] += len(others)
        if not self._texts.own:
            self._counts["lines of source"] += sum(map(self._rows, set(OF_SOURCE) & set(known)))
            known = [name for name in known if name not in OF_SOURCE]
        late = [name for name in _OF_THE_MACHINE if name in known]
        return [name for name in known if name not in late] + late

    def _rows(self, table: str) -> int:
        count = self._connection.execute(f"SELECT count(*) FROM source.{quoted(table)}")  # noqa: S608
        return int(count.fetchone()[0])

    def _columns(self, table: str) -> list[str]:
        listed = self._connection.execute(f"PRAGMA source.table_xinfo({quoted(table)})").fetchall()
        return [row[1].decode(errors="replace") for row in listed]

    def _copy(self, table: str) -> None:
        there = self._columns(table)
        if table in PAIRS:
            if {"name", "value"} <= set(there):
                self._copy_facts(table)
            return
        kept = {name: KEPT[table][name] for name in there if name in KEPT[table]}
        self._counts["columns"] += len(there) - len(kept)
        if not kept:
            return
        declared = ", ".join(f"{quoted(name)} {_type(column)}" for name, column in kept.items())
        self._connection.execute(f"CREATE TABLE main.{quoted(table)} ({declared})")
        chosen = ", ".join(_chosen(name, column) for name, column in kept.items())
        where = f" WHERE {_OF_THE_MACHINE[table]}" if self._is_limited(table, there) else ""
        self._connection.execute(
            f"INSERT INTO main.{quoted(table)} SELECT {chosen} FROM source.{quoted(table)}{where}"  # noqa: S608
        )
        if where:
            (copied,) = self._connection.execute("SELECT changes()").fetchone()
            self._counts["rows of other processes"] += self._rows(table) - int(copied)
        for name, column in kept.items():
            if column.by_number:
                self._numbered.setdefault(column.kind, set()).update(self._distinct(table, name))

    def _is_limited(self, table: str, there: list[str]) -> bool:
        """Whether a table is one of the machine; finds the processes that are used, once."""
        if table not in _OF_THE_MACHINE:
            return False
        if table == "SAMPLING_CALLCHAINS":
            return "COMPOSITE_EVENTS" in self._tables and "id" in there
        used = self._used()
        self._connection.create_function(
            "is_used", 1, lambda global_id: isinstance(global_id, int) and global_id >> 24 in used
        )
        return bool({"globalPid", "globalTid"} & set(there))

    def _used(self) -> set[int]:
        """The processes that the tables copied so far name."""
        used: set[int] = set()
        for table in self._tables:
            if table in KEPT and table not in _OF_THE_MACHINE:
                for column in {"globalPid", "globalTid"} & KEPT[table].keys():
                    used |= {value >> 24 for value in self._distinct(table, column)}
        return used

    def _distinct(self, table: str, column: str) -> list[int]:
        """The integers in a column of a copied table; none if it is not there."""
        listed = self._connection.execute(f"PRAGMA main.table_info({quoted(table)})").fetchall()
        if column.encode() not in [row[1] for row in listed]:
            return []
        query = f"SELECT DISTINCT {quoted(column)} FROM main.{quoted(table)}"  # noqa: S608
        values = (value for (value,) in self._connection.execute(query).fetchall())
        return [value for value in values if isinstance(value, int)]

    def _copy_facts(self, table: str) -> None:
        rows = self._connection.execute(
            f"SELECT CAST(name AS BLOB), CAST(value AS BLOB) FROM source.{quoted(table)}"  # noqa: S608
        ).fetchall()
        decoded = [(self._decoded(name), self._decoded(value)) for name, value in rows]
        facts = [
            (name, value, public_fact(table, name, value, self._texts)) for name, value in decoded
        ]
        kept = [(name, new) for name, _, new in facts if new is not None]
        self._counts["facts"] += sum(value != new for _, value, new in facts)
        self._connection.execute(f"CREATE TABLE main.{quoted(table)} (name TEXT, value TEXT)")
        insert = f"INSERT INTO main.{quoted(table)} VALUES (?, ?)"  # noqa: S608
        self._connection.executemany(insert, kept)

    def _copy_strings(self, table: str) -> None:
        """The numbered texts that kept columns name; the first kind of column decides."""
        if not {"id", "value"} <= set(self._columns(table)):
            return
        # The JSON of stacks names further texts: it comes before them.
        for number, text in self._strings(table):
            if number in self._numbered.get(TextKind.STACK, ()):
                self._texts.of(TextKind.STACK, text)
        for kind, numbers in self._texts.numbered.items():
            self._numbered.setdefault(kind, set()).update(numbers)
        self._connection.execute(f"CREATE TABLE main.{table} (id INTEGER PRIMARY KEY, value TEXT)")
        self._connection.executemany(
            f"INSERT OR IGNORE INTO main.{table} VALUES (?, ?)",  # noqa: S608
            self._kept_strings(table),
        )

    def _kept_strings(self, table: str) -> Iterator[tuple[int, str]]:
        for number, text in list(self._strings(table)):
            kind = next((k for k in _ORDER if number in self._numbered.get(k, ())), None)
            kept = self._texts.of(kind, text) if kind else None
            self._counts["texts"] += text != kept and text != REMOVED
            # The numbers of a stored trace have no gaps.
            if kind or table == TEXTS:
                yield number, REMOVED if kept is None else kept

    def _strings(self, table: str) -> Iterator[tuple[int, str]]:
        query = f"SELECT id, CAST(value AS BLOB) FROM source.{table} WHERE typeof(value) = 'text'"  # noqa: S608
        for number, value in self._connection.execute(query):
            if isinstance(number, int):
                yield number, self._decoded(value)

    def _decoded(self, value: object) -> str:
        return value.decode(self._encoding, "replace") if isinstance(value, bytes) else ""

    def _text_of(self, kind: TextKind) -> Callable[[object], str | None]:
        def kept(value: object) -> str | None:
            text = self._decoded(value)
            left = self._texts.of(kind, text)
            self._counts["texts"] += left != text
            return left

        return kept

    def _code_of(self, kind: TextKind) -> Callable[[object], bytes | None]:
        return self._payload if kind is TextKind.PAYLOAD else partial(self._code, kind)

    def _payload(self, value: object) -> bytes | None:
        left = nccl_calls.masked(value, self._schemas, nccl_calls.FIELDS)
        self._counts["texts"] += left != value
        return left

    def _code(self, kind: TextKind, blob: object) -> bytes | None:
        """Scrubbed code; nothing of damaged code, which cannot be scrubbed."""
        code = added_tables.unpacked(blob)
        if self._texts.renames:
            self._counts["code"] += 1
            return None
        texts = self._private if self._texts.own else PublicTexts.of(code or b"")
        cleaned = CLEAN[kind](code, texts) if code is not None else None
        if cleaned is None:
            self._counts["damaged code"] += 1
            return None
        self._counts["code"] += cleaned != code
        return added_tables.packed(cleaned)


def _type(kept: Kept) -> str:
    """The declared type of a kept column: that of the trace is text of the trace."""
    if kept.kind in (*_CODE, TextKind.PAYLOAD):
        return "BLOB"
    return "INTEGER" if kept.by_number or kept.kind is TextKind.NUMBER else "TEXT"


def _chosen(name: str, kept: Kept) -> str:
    """SQL for what is left of a column: values of another type become NULL."""
    column = quoted(name)
    if _type(kept) == "INTEGER":
        return f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} END"
    form = _type(kept).lower()
    cell = column if form == "blob" else f"CAST({column} AS BLOB)"
    return f"CASE WHEN typeof({column}) = '{form}' THEN kept_{kept.kind.name}({cell}) END"
