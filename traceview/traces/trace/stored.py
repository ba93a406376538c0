"""SQLite files of traceview's own layout: the tables of a Trace read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from traceview.base.errors import TraceFormatError
from traceview.base.tables import Array, Column, Mask, Table, Texts, null_of, thrifty
from traceview.traces.trace import staged
from traceview.traces.trace.model import Trace
from traceview.traces.trace.nsys import added_tables, export_info
from traceview.traces.trace.nsys.added_tables import with_sources
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.sqlite.row_reader import Columns, Kind, Numbers
from traceview.traces.trace.staged import Staged

# The SQLite file that holds the tables of a Trace, whatever recorder they came from.
#
# Each table of schema.TABLES is a table of the same name and columns. A text is stored once per
# column, in TRACEVIEW_TEXTS; the columns hold its number. NULL is an absent value; a table that
# was not recorded is missing. TRACEVIEW_TRACE names the recorder, TRACEVIEW_RUN holds what
# `traceview record` stored about the run. Kernel code and source lines are stored as that command
# adds them to an nsys export.

ABOUT = "TRACEVIEW_TRACE"
TEXTS = "TRACEVIEW_TEXTS"
RUN = "TRACEVIEW_RUN"
FORMAT = 1
"""Version of this layout; a reader refuses newer ones."""
STORED_AS = {"kernel_code": added_tables.KERNELS_TABLE, "source_lines": added_tables.EXCERPTS_TABLE}
"""Tables with a layout of their own, whose texts are stored in place, by their SQL names."""
# Counters of Nsight Compute come from a file beside the trace.
NUMBERED = tuple(name for name in TABLES if name not in {*STORED_AS, "kernel_counters"})
"""Tables whose texts are numbered."""


# Read the tables of a Trace back from the file that `write_trace` wrote.
#
# A file is untrusted input: a number outside its column's type or a text that is missing is an
# error.

_OWN_LAYOUT: Mapping[str, Callable[[Database], Staged | None]] = {
    "kernel_code": added_tables.staged,
    "source_lines": added_tables.source_excerpts,
}
_ALWAYS = ("devices", "processes", "threads")
_ROW_OF = {"process": "processes", "thread": "threads", "end_thread": "threads"}
_ROW_OF["device"] = "devices"
_AGAIN = "record the program again"


def is_stored(database: Database) -> bool:
    """Whether an open SQLite file has this layout."""
    return ABOUT in database.tables


def read(database: Database, path: str) -> Trace:
    """Read a stored trace; `path` is the name shown to the user.

    Raises TraceFormatError if a newer version wrote it or a value is impossible; sqlite3.Error if
    it is damaged.
    """
    about = _pairs(database, ABOUT)
    version = about.get("format", "")
    if not version.isdecimal():
        raise TraceFormatError(f"its {ABOUT} table names no format", _AGAIN)
    if int(version) > FORMAT:
        raise TraceFormatError(
            f"it has format {version}, and this traceview reads up to {FORMAT}", "update traceview"
        )
    capture = {str(k): str(v) for k, v in _json(about.get("capture"), dict).items()}
    tables, impossible = _tables(database, capture)
    for name in _ALWAYS:
        tables.setdefault(name, Table.empty(TABLES[name].columns))
    # Row numbers of processes, threads and GPUs must exist: all code indexes by them.
    for table in tables.values():
        for name, owner in _ROW_OF.items():
            if any(column.name == name for column in table.columns):
                numbers = table[name][~table.is_null(name)]
                if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(tables[owner]):
                    raise TraceFormatError(f"a {name} is not in table {owner}", _AGAIN)
    return Trace(
        path=path,
        recorder=about.get("recorder", "unknown"),
        recorder_version=about.get("recorder_version"),
        export_schema_version=about.get("export_schema_version"),
        tables={name: tables[name] for name in TABLES if name in tables},
        run=_pairs(database, RUN),
        capture=capture,
        warnings=(*map(str, _json(about.get("warnings"), list)), *staged.warnings_of(impossible)),
        impossible=impossible,
    )


def _pairs(database: Database, table: str) -> dict[str, str]:
    lines = database.lines(table, ("name", "value"))
    return {str(name): "" if value is None else str(value) for name, value in lines}


def _json(text: str | None, kind: Callable[[], Any]) -> Any:
    try:
        value = json.loads(text or "null")
    except ValueError:
        return kind()
    return value if isinstance(value, type(kind())) else kind()


def _tables(
    database: Database, capture: Mapping[str, str]
) -> tuple[dict[str, Table], tuple[staged.ImpossibleRows, ...]]:
    """The tables, and the rows that they leave out."""
    texts = _texts(database)
    numbered = {
        name: _staged(database, name, texts) for name in NUMBERED if name in database.tables
    }
    if "python_frames" in numbered:
        numbered["python_frames"] = with_sources(database, numbered["python_frames"])
    within = staged.window(numbered, export_info.length_of(capture))
    tables: dict[str, Table] = {}
    impossible: list[staged.ImpossibleRows] = []
    for name in [*numbered]:
        possible, found = staged.without_impossible(
            name, staged.ordered(name, numbered.pop(name)), within
        )
        impossible += found
        tables[name] = Table(TABLES[name].columns, possible)
    for name, staged_of in _OWN_LAYOUT.items():
        staged_own = staged_of(database)
        if staged_own is not None:
            tables[name] = Table(TABLES[name].columns, staged_own)
    return tables, tuple(impossible)


def _texts(database: Database) -> Texts:
    """The texts by number; absent for a number that is not used."""
    if TEXTS not in database.tables:
        return Texts.of(())
    columns = database.read(TEXTS, {"id": "integer", "value": "text"})
    number, value = _numbers(columns, "id").values.astype(np.int64), columns["value"]
    assert isinstance(value, Texts)
    if len(number) and not 0 <= number.min() <= number.max() < 2 * len(number) + 1:
        raise TraceFormatError(f"table {TEXTS} is damaged: a number is out of range", _AGAIN)
    codes = np.full(int(number.max(initial=-1)) + 1, -1, np.int32)
    codes[number] = value.codes
    return Texts(codes, value.values)


def _staged(database: Database, name: str, texts: Texts) -> Staged:
    there = database.describe(name).columns
    declared = TABLES[name].columns
    missing = [c.name for c in declared if c.name not in there and not c.nullable]
    if missing:
        raise TraceFormatError(f"table {name} has no column {', '.join(missing)}", _AGAIN)
    wanted: dict[str, Kind] = {c.name: "integer" for c in declared if c.name in there}
    columns = database.read(name, wanted)
    rows = len(next(iter(columns.values())))
    return {c.name: _column(name, c, columns, rows, texts) for c in declared}


def _column(table: str, column: Column, columns: Columns, rows: int, texts: Texts) -> Array | Texts:
    absent = Numbers(np.zeros(rows, np.int64), np.ones(rows, bool))
    numbers = _numbers(columns, column.name) if column.name in columns else absent
    null = np.zeros(rows, bool) if numbers.null is None else numbers.null
    if null.any() and not column.nullable and column.name not in staged.MEASURED:
        raise TraceFormatError(f"column {column.name} of table {table} has no value", _AGAIN)
    if column.dtype == "text":
        return _numbered(table, column.name, numbers.values, null, texts)
    dtype = np.dtype(column.dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.where(null, np.int64(0), numbers.values) if null.any() else numbers.values
    if rows and not least <= int(values.min()) <= int(values.max()) <= most:
        raise TraceFormatError(f"column {column.name} of table {table} is out of range", _AGAIN)
    values = values.astype(dtype)
    return thrifty(np.where(null, dtype.type(null_of(dtype)), values) if null.any() else values)


def _numbered(table: str, name: str, values: Array, null: Mask, texts: Texts) -> Texts:
    """A text column from text numbers, with its own distinct values; equal texts share a code."""
    number = np.where(null, -1, values.astype(np.int64))
    known = np.append(texts.codes, np.int32(-1))
    if len(number) and not -1 <= number.min() <= number.max() < len(texts):
        raise TraceFormatError(f"column {name} of table {table} names unknown texts", _AGAIN)
    used, places = np.unique(number[~null], return_inverse=True)
    code = known[used]
    if (code < 0).any():
        raise TraceFormatError(f"column {name} of table {table} names unknown texts", _AGAIN)
    own = {code: place for place, code in enumerate(dict.fromkeys(code.tolist()))}
    place_of = np.array([own[value] for value in code.tolist()], np.int32)
    codes = np.full(len(number), -1, np.int32)
    codes[~null] = place_of[places.reshape(-1)] if len(code) else 0
    return Texts(codes, texts.values[np.array([*own], np.int64)]).thrifty()


def _numbers(columns: Columns, name: str) -> Numbers:
    column = columns[name]
    assert isinstance(column, Numbers)
    return column
