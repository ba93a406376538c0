"""An nsys SQLite file, written table by table with the columns of one schema version."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.places import DATA

SCHEMAS: dict[str, Any] = json.loads((DATA / "nsys-schemas.json").read_text())

TRACED = ("Cuda", "NvtxEvents")

Row = dict[str, Any]


class ExportFile:
    """Rows under Nsight's own names. Every table of the version is written, unless dropped."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._tables: dict[str, str] = dict(SCHEMAS[schema]["tables"])
        self._rows: dict[str, list[Row]] = {name: [] for name in self._tables}
        self._strings: dict[str, int] = {}

    def raw(self, table: str, **columns: Any) -> Self:
        """Add a row by Nsight's own names; NOT NULL columns that are not given hold 0 or ''."""
        if table not in self._tables:
            raise KeyError(f"exports of schema {self._schema} have no {table}")
        known = {name for name, _, _ in _columns(self._tables[table])}
        if odd := set(columns) - known:
            raise KeyError(f"{table} of schema {self._schema} has no {', '.join(sorted(odd))}")
        self._rows[table].append(columns)
        return self

    def drop(self, *tables: str) -> Self:
        """Leave out these tables: the recorder never saw what they hold."""
        for table in tables:
            del self._tables[table]
        return self

    def string(self, text: str) -> int:
        """The id of a text in StringIds."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    def write(self, path: Path) -> Path:
        """Write the SQLite file and return its path."""
        # In this order: describing the rest registers strings.
        described = {**self._described(), **self._metadata()}
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(_empty(tuple(self._tables.items())))
            for table in self._tables:
                if rows := described.get(table, []) + self._rows[table]:
                    self._write_rows(connection, table, rows)
            connection.commit()
            path.write_bytes(connection.serialize())
        return path

    def _described(self) -> dict[str, list[Row]]:
        """Rows that follow from those that were added."""
        return {}

    def _metadata(self) -> dict[str, list[Row]]:
        major, minor, micro = self._schema.split(".")
        facts = {
            "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
            "EXPORT_PRODUCT_VERSION": SCHEMAS[self._schema]["product"],
            "EXPORT_SCHEMA_VERSION": self._schema,
            "EXPORT_SCHEMA_VERSION_MAJOR": major,
            "EXPORT_SCHEMA_VERSION_MINOR": minor,
            "EXPORT_SCHEMA_VERSION_MICRO": micro,
            # Every table is written: one that is not there was not recorded.
            "EXPORT_PARAM_LAZY": "false",
        }
        exported = [{"name": name, "value": value} for name, value in facts.items()]
        traced = [{"name": "CAPTURE_EVENT_TYPE", "value": kind} for kind in TRACED]
        strings = [{"id": number, "value": text} for text, number in self._strings.items()]
        return {
            "META_DATA_EXPORT": exported,
            "EXPORT_META_DATA": exported,
            "META_DATA_CAPTURE": traced,
            "StringIds": strings,
        }

    def _write_rows(self, connection: sqlite3.Connection, table: str, rows: list[Row]) -> None:
        columns = _columns(self._tables[table])
        marks = ", ".join("?" * len(columns))
        filled = [[_cell(row.get(n), kind, needed) for n, kind, needed in columns] for row in rows]
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', filled)


@cache
def _empty(tables: tuple[tuple[str, str], ...]) -> bytes:
    """A file of these tables without rows: to create them takes longer than to fill them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, columns in tables:
            connection.execute(f'CREATE TABLE "{table}" ({_declared(table, columns)})')
        return connection.serialize()


def _declared(table: str, columns: str) -> str:
    key = [", PRIMARY KEY (id)"] * (table == "StringIds")
    declared = [
        f'"{name}" {kind}{" NOT NULL" * needed}' for name, kind, needed in _columns(columns)
    ]
    return f"{', '.join(declared)}{''.join(key)}"


@cache
def _columns(columns: str) -> list[tuple[str, str, bool]]:
    kinds = {"": "INTEGER", "T": "TEXT", "R": "REAL", "B": "BLOB", "P": "INTEGER PRIMARY KEY"}
    parts = [(spec.rstrip("!"), spec.endswith("!")) for spec in columns.split()]
    split = [(spec.partition(":"), needed) for spec, needed in parts]
    return [(name, kinds[kind], needed) for (name, _, kind), needed in split]


def _cell(value: Any, kind: str, needed: bool) -> Any:
    if value is None and needed:
        return "" if kind == "TEXT" else 0
    return value
