"""Copy a trace without private data.

An export of nsys contains every environment variable of the recorded program and of the recorder,
the program's output, host and user names, and absolute paths. Some values contain NUL bytes, at
which the text functions of SQL stop, so everything is processed as bytes in Python.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from traceview.errors import TraceFormatError
from traceview.outputs import check_trace_output
from traceview.records import record
from traceview.trace import load
from traceview.trace.nsys import export_info, kernel_code, source_excerpts
from traceview.trace.rank_identity import HOST, NUMBERING, pseudonym
from traceview.trace.scrub.code_secrets import CLEAN
from traceview.trace.scrub.secrets import REMOVED, PrivateTexts, is_environment, variables
from traceview.trace.sqlite import file as sqlite_file
from traceview.trace.sqlite.row_reader import quoted
from traceview.trace.stored import reader as stored
from traceview.trace.stored.layout import RUN, TEXTS
from traceview.trace.stored.writer import write_trace

# Tables of name and value, with the names whose values are removed.
_NAMED_VALUES = {
    "TARGET_INFO_SYSTEM_ENV": re.compile(r"Environment|Host_?name|User|Domain", re.IGNORECASE),
    "META_DATA_CAPTURE": re.compile(r"ENVIRONMENT|USER_NAME|WORKING_DIR|DISPLAY_NAME|HOST"),
    "META_DATA_EXPORT": re.compile(r"EXPORT_HOST|EXPORT_USER|_PATH"),
    "EXPORT_META_DATA": re.compile(r"EXPORT_HOST|EXPORT_USER|_PATH"),
}
_ENVIRONMENT = re.compile(r"ENVIRONMENT", re.IGNORECASE)
_HOST_OR_USER = re.compile(r"HOST|USER|DISPLAY_NAME", re.IGNORECASE)
# Output of the program, and the names of its files.
_OUTPUT = {"ProcessStreams": ("filenameId", "contentId"), "ANALYSIS_FILE": ("contentId",)}
# Columns with names of kernels, ranges and calls, which stay as they are.
_NAMES = ("nameId", "demangledName", "shortName", "mangledName", "textId")
_NAME_TABLES = re.compile(r"CUPTI_ACTIVITY_KIND_|NVTX_EVENTS|CUBLAS_EVENTS|CUDNN_EVENTS|CUDA_GRAPH")
# Tables in which every text names kernels, ranges, the GPU or the format itself.
_UNTOUCHED = re.compile(r"ENUM_|TARGET_INFO_GPU$|NVTX_EVENTS$|StringIds$|sqlite_")
# CI environments contain the commit; it is not a secret, and ties the run to its source.
_PUBLIC = {"TRACEVIEW_RUN": b"git_commit"}
# Kernel names and hashes stay; code is scrubbed by code_secrets.
_OF_CODE = {"name", "hash", "arch", *kernel_code.BLOBS}
# Kept: otherwise the rank of a recording would be lost.
_NUMBERS_A_RANK = re.compile(rf"(?:{'|'.join(sorted(NUMBERING))})=\"?\d+\"?".encode()).fullmatch
_TYPED_AS_NUMBER = re.compile(r"INT|REAL|FLOA|DOUB|NUM", re.IGNORECASE)


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
    keep_source_lines: bool = False,
    environment: Mapping[bytes, bytes] = MappingProxyType({}),
) -> ScrubReport:
    """Write a copy of a trace without private data to `out`.

    Removes environment, host and user names, working folder and program output, and values of
    environment variables wherever they occur; home folders become `~`. Names of kernels, ranges
    and calls stay. Lines of the program's files go, too, unless `keep_source_lines`. `environment`
    is that of the recorded program, where the trace does not hold it.

    A trace of torch.profiler becomes an SQLite file, as `convert` writes it. `out` is replaced as a
    whole or not at all; the source, which may be compressed (.gz, .xz, .zst), is not changed.
    Raises TraceFormatError if the source is not a trace, InputError if `out` cannot be written,
    OutputExistsError if it exists and not `force`.
    """
    check_trace_output(out, force=force, source=source)
    try:
        with _work_folder(out) as work:
            folder = Path(work)
            clean = folder / "clean.sqlite"
            report = _clean_copy(_copied(source, folder), clean, keep_source_lines, environment)
            clean.replace(out)
            return report
    except TraceFormatError as error:
        raise TraceFormatError(f"cannot scrub {source}: {error.what}", error.remedy) from error
    except sqlite3.DatabaseError as error:
        what = f"cannot scrub {source}: SQLite cannot read it ({error})"
        raise TraceFormatError(what, "export the recording again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"cannot scrub {source} to {out}: {reason}"
        raise TraceFormatError(what, "check both paths") from error


def _work_folder(out: Path) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".traceview-")


def _check(plain: Path) -> None:
    with sqlite_file.opened(plain) as database:
        if not stored.is_stored(database):
            export_info.read_meta(database)


def _copied(source: Path, folder: Path) -> Path:
    """A copy of the trace as SQLite file, to scrub in place."""
    copy = folder / "copy.sqlite"
    if load.is_json(source):
        write_trace(load.load_torch(source), copy)
        return copy
    with load.unpacked(source) as plain:
        _check(plain)
        for suffix in ("", "-wal", "-journal"):
            part = plain.with_name(plain.name + suffix)
            if part.exists():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
    return copy


def _clean_copy(
    copy: Path, clean: Path, keep_source_lines: bool, environment: Mapping[bytes, bytes]
) -> ScrubReport:
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.text_factory = bytes
        connection.execute("BEGIN")
        counts = _Scrubber(connection, environment).run(keep_source_lines)
        connection.execute("COMMIT")
        # Into a new file: unused pages of the old one would keep removed bytes.
        connection.execute("VACUUM INTO ?", (str(clean),))
    finally:
        connection.close()
    return ScrubReport(dict(counts))


_ALL_PROCESSES = {"PROCESSES": "globalPid", "ThreadNames": "globalTid"}
# With enough rights, the recorder samples and lists all processes of the machine.
_OF_THE_MACHINE = {"SCHED_EVENTS", "COMPOSITE_EVENTS"}


def _among(global_id: object, processes: set[int]) -> bool:
    return isinstance(global_id, int) and global_id >> 24 in processes


class _Scrubber:
    """Scrubs one open copy of an export."""

    def __init__(self, connection: sqlite3.Connection, environment: Mapping[bytes, bytes]) -> None:
        self._connection = connection
        self._counts: Counter[str] = Counter()
        self._found: set[tuple[bytes, bytes]] = set(environment.items())
        self._hosts_and_users: set[bytes] = set()
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = [name.decode() for (name,) in listed.fetchall()]

    def run(self, keep_source_lines: bool) -> Counter[str]:
        if not keep_source_lines:
            self._remove_source_lines()
        for table, names in _NAMED_VALUES.items():
            if {"name", "value"} <= set(self._columns(table)):
                self._remove_named_values(table, names)
        self._rename_hosts()
        self._remove_other_processes()
        kept, printed = self._ids(self._name_columns()), self._ids(self._output_columns())
        self._remove_strings(kept, printed)
        private = PrivateTexts.of(self._found, self._hosts_and_users)
        for table, column in self._text_columns():
            self._clean(table, column, private)
        for column in set(kernel_code.BLOBS) & set(self._columns(kernel_code.STORED_AS)):
            self._clean_code(column, private)
        self._clean_strings(kept, private)
        return self._counts

    def _remove_source_lines(self) -> None:
        table = source_excerpts.STORED_AS
        if table in self._tables:
            count = f"SELECT count(*) FROM {quoted(table)}"  # noqa: S608
            self._counts["lines of source"] += self._connection.execute(count).fetchone()[0]
            self._connection.execute(f"DROP TABLE {quoted(table)}")
            self._tables.remove(table)

    def _remove_other_processes(self) -> None:
        """Remove the names of processes and threads without events, possibly of other users."""
        used: set[int] = set()
        for table in self._tables:
            for column in {"globalPid", "globalTid"} & set(self._columns(table)):
                if table not in _ALL_PROCESSES.keys() | _OF_THE_MACHINE:
                    select = f"SELECT DISTINCT {column} FROM {quoted(table)}"  # noqa: S608
                    found = self._connection.execute(select)
                    used |= {value >> 24 for (value,) in found if isinstance(value, int)}
        for table, column in _ALL_PROCESSES.items():
            if column in self._columns(table):
                rows = self._connection.execute(
                    f"SELECT rowid, {column} FROM {quoted(table)}"  # noqa: S608
                ).fetchall()
                others = [(row,) for row, value in rows if not _among(value, used)]
                delete = f"DELETE FROM {quoted(table)} WHERE rowid = ?"  # noqa: S608
                self._connection.executemany(delete, others)
                if others:
                    self._counts["names of other processes"] += len(others)

    def _columns(self, table: str) -> dict[str, str]:
        """Names and declared types of a table's columns; none if the table is missing."""
        if table not in self._tables:
            return {}
        rows = self._connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
        return {row[1].decode(): row[2].decode() for row in rows}

    def _values(self, table: str, column: str) -> Iterator[tuple[int, bytes, bytes]]:
        """(rowid, value, SQL type) of the texts and blobs of a column."""
        yield from self._connection.execute(
            f"SELECT rowid, {quoted(column)}, typeof({quoted(column)}) FROM {quoted(table)} "  # noqa: S608
            f"WHERE typeof({quoted(column)}) IN ('text', 'blob')"
        ).fetchall()

    def _put(self, table: str, column: str, row: int, value: bytes, kind: bytes = b"text") -> None:
        stored = value if kind == b"blob" else value.decode(errors="replace")
        update = f"UPDATE {quoted(table)} SET {quoted(column)} = ? WHERE rowid = ?"  # noqa: S608
        self._connection.execute(update, (stored, row))

    def _remove_named_values(self, table: str, names: re.Pattern[str]) -> None:
        labels = {
            row: text.decode(errors="replace") for row, text, _ in self._values(table, "name")
        }
        for row, value, kind in self._values(table, "value"):
            label = labels.get(row, "")
            if not names.search(label) or value in (b"", REMOVED) or _NUMBERS_A_RANK(value):
                continue
            self._remember(label, value)
            self._put(table, "value", row, REMOVED, kind)
            self._counts["environment" if _ENVIRONMENT.search(label) else "host, user, path"] += 1

    def _rename_hosts(self) -> None:
        """Replace the host of a rank by a pseudonym, which still distinguishes hosts."""
        if not {"name", "value"} <= set(self._columns(RUN)):
            return
        labels = {row: name for row, name, _ in self._values(RUN, "name")}
        for row, value, kind in self._values(RUN, "value"):
            renamed = pseudonym(value.decode(errors="replace")).encode()
            if labels.get(row) == HOST.encode() and value != renamed:
                self._hosts_and_users.add(value)
                self._put(RUN, "value", row, renamed, kind)
                self._counts["host, user, path"] += 1

    def _remember(self, label: str, value: bytes) -> None:
        if _ENVIRONMENT.search(label):
            self._found.update(variables(value))
        elif _HOST_OR_USER.search(label):
            self._hosts_and_users.add(value)

    def _name_columns(self) -> Iterator[tuple[str, str]]:
        for table in filter(_NAME_TABLES.match, self._tables):
            yield from ((table, column) for column in _NAMES if column in self._columns(table))

    def _output_columns(self) -> Iterator[tuple[str, str]]:
        for table, columns in _OUTPUT.items():
            yield from ((table, column) for column in columns if column in self._columns(table))

    def _ids(self, columns: Iterator[tuple[str, str]]) -> set[int]:
        ids: set[int] = set()
        for table, column in columns:
            query = f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)}"  # noqa: S608
            ids.update(value for (value,) in self._connection.execute(query))
        return ids

    def _strings(self, kept: set[int]) -> Iterator[tuple[int, int, bytes]]:
        """(rowid, id, text) of StringIds, except names of kernels, ranges and calls."""
        if not {"id", "value"} <= set(self._columns("StringIds")):
            return
        ids = dict(self._connection.execute("SELECT rowid, id FROM StringIds").fetchall())
        for row, text, _ in self._values("StringIds", "value"):
            if ids[row] not in kept:
                yield row, ids[row], text

    def _remove_strings(self, kept: set[int], printed: set[int]) -> None:
        for row, number, text in self._strings(kept):
            environment = is_environment(text)
            if text in (b"", REMOVED) or not (environment or number in printed):
                continue
            if environment:
                self._found.update(variables(text))
            self._counts["environment" if environment else "program output"] += 1
            self._put("StringIds", "value", row, REMOVED)

    def _clean_strings(self, kept: set[int], private: PrivateTexts) -> None:
        for row, _, text in self._strings(kept):
            self._clean_value("StringIds", "value", row, text, b"text", private)

    def _text_columns(self) -> Iterator[tuple[str, str]]:
        for table in self._tables:
            if not _UNTOUCHED.match(table):
                for column, declared in self._columns(table).items():
                    code = table == kernel_code.STORED_AS and column in _OF_CODE
                    if not (code or _TYPED_AS_NUMBER.search(declared)):
                        yield table, column

    def _clean(self, table: str, column: str, private: PrivateTexts) -> None:
        public = self._public_rows(table)
        for row, value, kind in self._values(table, column):
            if row not in public:
                self._clean_value(table, column, row, value, kind, private)

    def _public_rows(self, table: str) -> set[int]:
        if table not in _PUBLIC or "name" not in self._columns(table):
            return set()
        return {row for row, name, _ in self._values(table, "name") if name == _PUBLIC[table]}

    def _clean_value(
        self, table: str, column: str, row: int, value: bytes, kind: bytes, private: PrivateTexts
    ) -> None:
        # Most texts of a stored trace name kernels, ranges and calls; files are among them, too.
        named = table == TEXTS
        cleaned = private.shortened(value) if named else private.cleaned(value)
        if cleaned != value:
            self._put(table, column, row, cleaned, kind)
            self._counts["home path or value elsewhere"] += 1

    def _clean_code(self, column: str, private: PrivateTexts) -> None:
        """Scrub one kind of code; damaged code, which cannot be scrubbed, is removed."""
        for row, blob, _ in self._values(kernel_code.STORED_AS, column):
            code = kernel_code.unpacked(blob)
            cleaned = CLEAN[column](code, private) if code is not None else None
            if cleaned is None or cleaned != code:
                stored = kernel_code.packed(cleaned) if cleaned is not None else None
                self._put_code(column, row, stored)
                self._counts["home path or value in code" if stored else "damaged code"] += 1

    def _put_code(self, column: str, row: int, blob: bytes | None) -> None:
        table = quoted(kernel_code.STORED_AS)
        update = f"UPDATE {table} SET {quoted(column)} = ? WHERE rowid = ?"  # noqa: S608
        self._connection.execute(update, (blob, row))
