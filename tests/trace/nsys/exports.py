"""Write a small nsys export, row by row, for tests of the reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from traceview.traces.trace import Trace

HOST = 1 << 48
NAMES = {1: "void gemm<float>(int)", 2: "gemm", 3: "cudaLaunchKernel_v7000"}
Row = Mapping[str, object]
META = {"EXPORT_PRODUCT_VERSION": "2025.3.2.0", "EXPORT_SCHEMA_VERSION": "3.20.3"}
KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
SYNC, OVERHEAD = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_OVERHEAD"
TRACED = (("CAPTURE_EVENT_TYPE", "Cuda"), ("CAPTURE_EVENT_TYPE", "NvtxEvents"))


def pid(process: int, host: int = 1) -> int:
    return host << 48 | process << 24


def tid(process: int, thread: int, host: int = 1) -> int:
    return pid(process, host) | thread


def kernel(start: int, end: int, **more: object) -> Row:
    row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7}
    named = {"correlationId": 1, "globalPid": pid(10), "demangledName": 1, "shortName": 2}
    return {**row, **named, **more}


def call(start: int, end: int, name: int = 3, **more: object) -> Row:
    return {
        "start": start,
        "end": end,
        "eventClass": 0,
        "globalTid": tid(10, 11),
        "correlationId": 1,
        "nameId": name,
        "callchainId": None,
        **more,
    }


def nvtx(start: int, end: int | None, text: str | None = "step", **more: object) -> Row:
    row = {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": tid(10, 11)}
    return {**row, "endGlobalTid": None, "textId": None, "domainId": 0, **more}


def write_export(
    path: Path,
    tables: Mapping[str, Sequence[Row]],
    *,
    names: Mapping[int, str] = NAMES,
    meta: Mapping[str, str] = META,
    capture: Iterable[tuple[str, str]] = (),
    meta_table: str = "META_DATA_EXPORT",
) -> Path:
    """Write tables whose columns are the keys of their first row."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT)")
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
    write_pairs(connection, meta_table, meta.items())
    if capture := list(capture):
        write_pairs(connection, "META_DATA_CAPTURE", capture)
    for table, rows in tables.items():
        _write_table(connection, table, rows)
    connection.commit()
    connection.close()
    return path


def write_pairs(
    connection: sqlite3.Connection, table: str, pairs: Iterable[tuple[str, str]]
) -> None:
    connection.execute(f"CREATE TABLE {table} (name TEXT NOT NULL, value TEXT)")
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", pairs)


def _write_table(connection: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    columns = ", ".join(f'"{name}" {_type(name)}' for name in rows[0])
    connection.execute(f"CREATE TABLE {table} ({columns})")
    marks = ", ".join("?" * len(rows[0]))
    lines = [tuple(row.values()) for row in rows]
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", lines)


def _type(name: str) -> str:
    return "TEXT" if name in {"text", "name", "value", "label"} else "INTEGER"


def on_stream(start: int, end: int, **more: object) -> Row:
    row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7}
    return {**row, "correlationId": 1, "globalPid": pid(10), **more}


def cells(trace: Trace, table: str, *columns: str) -> list[tuple[object, ...]]:
    return list(zip(*(trace.table(table).cells(name) for name in columns), strict=True))
