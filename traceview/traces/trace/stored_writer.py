"""Write the tables of a Trace to an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from traceview.base import groups, stages
from traceview.base.errors import TraceFormatError
from traceview.base.tables import Table, Texts
from traceview.traces.trace.model import Trace
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.sqlite.row_reader import quoted
from traceview.traces.trace.stored import ABOUT, FORMAT, NUMBERED, RUN, STORED_AS, TEXTS

_ROWS = 100_000
_TYPES = {"text": "TEXT", "bytes": "BLOB", "float64": "REAL"}


def write_trace(trace: Trace, path: Path, *, shown: Path | None = None) -> None:
    """Write a trace to a new file, from which `load` reads the same trace.

    Tables that were inferred, and counters of Nsight Compute, are not stored. Raises
    TraceFormatError if the file cannot be written; it names `shown`, where `path` is temporary.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # The file is new: after a crash there is nothing to recover.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            _write(trace, connection)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        what = f"cannot write {shown or path}: {error}"
        raise TraceFormatError(what, "choose another file") from error


def _write(trace: Trace, connection: sqlite3.Connection) -> None:
    _pairs(connection, ABOUT, _about(trace))
    if trace.run:
        _pairs(connection, RUN, trace.run.items())
    numbered: list[str] = []
    recorded = [name for name in TABLES if name in trace.tables and name not in trace.absent]
    rows, written = sum(len(trace.tables[name]) for name in recorded), 0
    for name in recorded:
        stages.stage("Writing the trace", written, rows)
        written += len(trace.tables[name])
        table = trace.tables[name]
        if name in NUMBERED:
            _add(connection, name, table, "INTEGER", _numbered(table, numbered))
        elif name in STORED_AS:
            columns = [
                [_sound(cell) if isinstance(cell, str) else cell for cell in table.cells(c.name)]
                for c in table.columns
            ]
            _add(connection, STORED_AS[name], table, "TEXT", [zip(*columns, strict=True)])
    texts = enumerate(map(_sound, numbered))
    connection.execute(f"CREATE TABLE {TEXTS} (id INTEGER, value TEXT)")
    connection.executemany(f"INSERT INTO {TEXTS} VALUES (?, ?)", texts)  # noqa: S608


def _about(trace: Trace) -> Iterator[tuple[str, str]]:
    yield "format", str(FORMAT)
    yield "recorder", trace.recorder
    if trace.recorder_version is not None:
        yield "recorder_version", trace.recorder_version
    if trace.export_schema_version is not None:
        yield "export_schema_version", trace.export_schema_version
    yield "capture", json.dumps(dict(trace.capture))
    yield "warnings", json.dumps(list(trace.warnings))


def _pairs(connection: sqlite3.Connection, table: str, pairs: Iterable[tuple[str, str]]) -> None:
    connection.execute(f"CREATE TABLE {table} (name TEXT PRIMARY KEY, value TEXT)")
    rows = [(_sound(name), _sound(value)) for name, value in pairs]
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)  # noqa: S608


def _add(
    connection: sqlite3.Connection,
    name: str,
    table: Table,
    text_type: str,
    batches: Iterable[Iterable[Sequence[Any]]],
) -> None:
    types = {**_TYPES, "text": text_type}
    declared = (f"{quoted(c.name)} {types.get(c.dtype, 'INTEGER')}" for c in table.columns)
    connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(declared)})")
    marks = ", ".join("?" * len(table.columns))
    for rows in batches:
        connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({marks})", rows)  # noqa: S608


def _numbered(table: Table, numbered: list[str]) -> Iterator[Iterable[Sequence[Any]]]:
    """The rows in batches, texts replaced by their numbers; append the texts to `numbered`."""
    number_of = {
        column.name: _numbers(table.texts(column.name), numbered)
        for column in table.columns
        if column.dtype == "text"
    }
    nulls = {
        c.name: int(np.iinfo(table[c.name].dtype).min) if c.nullable else None
        for c in table.columns
        if c.name not in number_of
    }
    for first in range(0, len(table), _ROWS):
        some = slice(first, first + _ROWS)
        columns = [
            _integers(number_of[c.name][table.texts(c.name).codes[some]], absent=-1)
            if c.name in number_of
            else _integers(table[c.name][some], absent=nulls[c.name])
            for c in table.columns
        ]
        yield zip(*columns, strict=True)


def _numbers(texts: Texts, numbered: list[str]) -> np.ndarray[tuple[int, ...], Any]:
    """The number of each distinct value that occurs; the last element, of code −1, is −1.

    Columns share no numbers: the numbers of one column keep the order of its codes, which decides
    the order of rows with equal figures.
    """
    numbers = np.full(len(texts.values) + 1, -1, np.int64)
    used = groups.different(texts.codes[texts.codes >= 0])
    numbers[used] = len(numbered) + np.arange(len(used))
    numbered.extend(str(texts.values[code]) for code in used.tolist())
    return numbers


def _integers(values: np.ndarray[tuple[int, ...], Any], absent: int | None) -> list[int | None]:
    cells: list[int | None] = values.tolist()
    if absent is not None:
        for row in np.flatnonzero(values == absent).tolist():
            cells[row] = None
    return cells


def _sound(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
