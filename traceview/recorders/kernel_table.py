"""TRACEVIEW_KERNELS: the kernels that the program gathered, in the recording itself."""

from __future__ import annotations

import binascii
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from traceview.errors import RecordingError
from traceview.trace.nsys.kernel_code import MOST_BYTES, STORED_AS, packed
from traceview.trace.schema import KERNEL_CODE

_TYPES: Mapping[str, type] = {"text": str, "int32": int, "int64": int, "bytes": bytes}
_LOADED = ".loaded.json"

Row = dict[str, Any]


def write_kernels(database: Path, folder: Path) -> int:
    """Add the table of the kernels in a gathered folder, and say how many there are.

    A kernel that several processes wrote is there once; a file that is damaged is left out.
    Raises RecordingError if the database is no sound one.
    """
    # Imported late: it takes a third of a second, which reading a trace should not pay.
    from sqlite_utils import Database

    rows = list(_rows(folder))
    store = Database(database)
    try:
        with closing(store.conn):
            table = store.table(STORED_AS)
            columns = {column.name: _TYPES[column.dtype] for column in KERNEL_CODE.columns}
            table.create(columns, replace=True)
            table.insert_all(rows)
    except sqlite3.Error as error:
        what = f"nsys exported what SQLite cannot read ({error})"
        raise RecordingError(what, "traceview doctor tries the export") from error
    return len(rows)


def _rows(folder: Path) -> Iterator[Row]:
    """One row a kernel, by name; what the compiler gave comes before what a launcher knew."""
    seen: set[tuple[object, ...]] = set()
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.name.endswith(_LOADED), path.name))
    for path in paths:
        row = _row(path)
        if row is None:
            continue
        # The hash says from what it was made; without one, all that came of it does.
        same = (row["hash"],) if row["hash"] else tuple(row.values())
        if same not in seen:
            seen.add(same)
            yield row


def _row(path: Path) -> Row | None:
    try:
        return _of(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _of(told: Mapping[str, Any]) -> Row:
    arguments = told.get("arguments") or []
    known = ("name", "type", "divisible_by_16")
    signature = [{key: argument[key] for key in known} for argument in arguments]
    constexprs = {a["name"]: a.get("value") for a in arguments if a["type"] == "constexpr"}
    ptx = told.get("ptx")
    return {
        "name": str(told["name"]),
        "hash": told.get("hash"),
        "arch": f"sm_{int(told['arch'])}" if told.get("arch") else None,
        "num_warps": told.get("num_warps"),
        "num_stages": told.get("num_stages"),
        "shared_memory_bytes": told.get("shared_bytes"),
        "signature": json.dumps(signature),
        "constexprs": json.dumps(constexprs),
        "options": json.dumps(told.get("options") or {}),
        "source_file": told.get("source_file"),
        "source_line": told.get("source_line"),
        "source_text": told.get("source_text"),
        "ptx": _packed(ptx.encode("utf-8", "surrogateescape") if ptx else None),
        "cubin": _packed(binascii.a2b_base64(told["cubin"]) if told.get("cubin") else None),
    }


def _packed(code: bytes | None) -> bytes | None:
    return packed(code) if code and len(code) <= MOST_BYTES else None
