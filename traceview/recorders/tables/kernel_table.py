"""TRACEVIEW_KERNELS: write the kernels gathered in the program into the trace."""

from __future__ import annotations

import binascii
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from traceview.errors import RecordingError
from traceview.recorders.tables.run_table import export_database
from traceview.trace.nsys.added_tables import KERNELS_TABLE, MOST_BYTES, packed
from traceview.trace.schema.program import KERNEL_CODE

_TYPES: Mapping[str, type] = {"text": str, "int32": int, "int64": int, "bytes": bytes}
_LOADED = ".loaded.json"

Row = dict[str, Any]


def write_kernels(database: Path, folder: Path) -> int:
    """Add the table of the kernels in a gathered folder. Returns their number.

    A kernel written by several processes is stored once; damaged files are left out. Raises
    RecordingError if the database is damaged.
    """
    rows = list(_rows(folder))
    store = export_database(database)
    try:
        with closing(store.conn):
            table = store.table(KERNELS_TABLE)
            columns = {column.name: _TYPES[column.dtype] for column in KERNEL_CODE.columns}
            table.create(columns, replace=True)
            table.insert_all(rows)
    except sqlite3.Error as error:
        what = f"SQLite cannot read the export of nsys ({error})"
        raise RecordingError(what, "run traceview doctor to test the export") from error
    return len(rows)


def _rows(folder: Path) -> Iterator[Row]:
    """One row per kernel, by file name; the compiler's files come before a launcher's."""
    seen: set[tuple[object, ...]] = set()
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.name.endswith(_LOADED), path.name))
    for path in paths:
        row = _row(path)
        if row is None:
            continue
        # The hash identifies source and options. Without one, compare all fields.
        key = (row["hash"],) if row["hash"] else tuple(row.values())
        if key not in seen:
            seen.add(key)
            yield row


def _row(path: Path) -> Row | None:
    try:
        return _row_of(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _row_of(kernel: Mapping[str, Any]) -> Row:
    arguments = kernel.get("arguments") or []
    known = ("name", "type", "divisible_by_16")
    signature = [{key: argument[key] for key in known} for argument in arguments]
    constexprs = {a["name"]: a.get("value") for a in arguments if a["type"] == "constexpr"}
    ptx = kernel.get("ptx")
    return {
        "name": str(kernel["name"]),
        "hash": kernel.get("hash"),
        "arch": f"sm_{int(kernel['arch'])}" if kernel.get("arch") else None,
        "num_warps": kernel.get("num_warps"),
        "num_stages": kernel.get("num_stages"),
        "shared_memory_bytes": kernel.get("shared_bytes"),
        "signature": json.dumps(signature),
        "constexprs": json.dumps(constexprs),
        "options": json.dumps(kernel.get("options") or {}),
        "source_file": kernel.get("source_file"),
        "source_line": kernel.get("source_line"),
        "source_text": kernel.get("source_text"),
        "ptx": _packed(ptx.encode("utf-8", "surrogateescape") if ptx else None),
        "cubin": _packed(binascii.a2b_base64(kernel["cubin"]) if kernel.get("cubin") else None),
    }


def _packed(code: bytes | None) -> bytes | None:
    return packed(code) if code and len(code) <= MOST_BYTES else None
