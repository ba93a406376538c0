"""Figures of a report computed once more with SQL on the recording, to be followed by hand."""

from __future__ import annotations

import lzma
import math
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceview.base.tables import Cell, Table
from traceview.traces.analyses.base import Result

_PRECISION = 1e-9


@dataclass(frozen=True)
class Worked:
    """An example of how figures are computed: `sql` gives rows of the report's `table`.

    Columns are named as in that table; those of `key` tell which row is meant.
    """

    says: str
    sql: str
    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def worked(entries: Sequence[Mapping[str, Any]], recording: Path) -> tuple[Worked, ...]:
    """The examples of one question, computed on its recording (`.sqlite.xz`)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.sqlite"
        path.write_bytes(lzma.decompress(recording.read_bytes()))
        export = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            return tuple(_computed(export, entry) for entry in entries)
        finally:
            export.close()


def _computed(export: sqlite3.Connection, entry: Mapping[str, Any]) -> Worked:
    cursor = export.execute(entry["sql"])
    columns = tuple(each[0] for each in cursor.description)
    table, key = entry["table"], tuple(entry["key"])
    return Worked(entry["says"], entry["sql"].strip(), table, key, columns, (*cursor,))


def differences(example: Worked, outcome: Result) -> Iterator[str]:
    """Where the report says something else than the example; at least one row must be there."""
    if not example.rows:
        yield f"{example.table}: the query finds nothing"
    for values in example.rows:
        row = dict(zip(example.columns, values, strict=True))
        reported = _row_of(outcome.tables[example.table], {name: row[name] for name in example.key})
        if reported is None:
            yield f"{example.table}: the report has no such row: {row}"
            continue
        for name, value in row.items():
            if not _equal(value, reported[name]):
                yield f"{example.table}.{name}: computed {value}, reported {reported[name]}"


def _row_of(table: Table, key: Mapping[str, Cell]) -> Mapping[str, Cell] | None:
    rows = table.rows()
    return next((row for row in rows if all(row[name] == key[name] for name in key)), None)


def _equal(computed: Cell, reported: Cell) -> bool:
    if isinstance(computed, float) and isinstance(reported, float):
        return math.isclose(computed, reported, rel_tol=_PRECISION)
    return computed == reported
