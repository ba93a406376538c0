"""Tables that a recorder adds to a trace: facts of the run, kernels, samples of Python stacks."""

from __future__ import annotations

import binascii
import json
import sqlite3
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from traceview.errors import RecordingError
from traceview.recorders.injected.traceview_injected.python_sampler import SUFFIX
from traceview.trace.nsys.added_tables import FRAMES, KERNELS_TABLE, MOST_BYTES, SAMPLES, packed
from traceview.trace.nsys.sample_clock import global_pids, sample_clock
from traceview.trace.schema.program import KERNEL_CODE

if TYPE_CHECKING:
    from sqlite_utils import Database

RUN_TABLE = "TRACEVIEW_RUN"
_TYPES = {"text": "TEXT", "int32": "INTEGER", "int64": "INTEGER", "bytes": "BLOB"}
_LOADED = ".loaded.json"

Row = Mapping[str, Any]


def write_table(
    path: Path,
    name: str,
    columns: Mapping[str, str],
    rows: Iterable[Row],
    key: str | None = None,
) -> None:
    """Add a table to a trace, replacing an existing one; `columns` have types of SQLite.

    `key` is the column of the primary key. Raises RecordingError if the database is damaged.
    """
    cells = ({column: row.get(column) for column in columns} for row in rows)
    try:
        database = _database_class()(path)
        with closing(database.conn):
            table = database.table(name)
            table.create(dict(columns), pk=key, replace=True)
            table.insert_all(cells)
    except sqlite3.Error as error:
        raise _damaged(error) from error


@cache
def _database_class() -> type[Database]:
    """Database of sqlite-utils, imported late and without pandas.

    It imports pandas, which takes 0.4 s, for its timestamps alone. Where other threads may be
    importing either, it may. Afterwards it leaves sys.modules, so that a later import is complete.
    """
    hidden = not {"pandas", "sqlite_utils"} & sys.modules.keys() and threading.active_count() == 1
    if hidden:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        from sqlite_utils import Database
    finally:
        if hidden:
            del sys.modules["pandas"]
            for name in [name for name in sys.modules if name.partition(".")[0] == "sqlite_utils"]:
                del sys.modules[name]
    return Database


def _damaged(error: sqlite3.Error) -> RecordingError:
    what = f"SQLite cannot read the export of nsys ({error})"
    return RecordingError(what, "run traceview doctor to test the export")


def write_run(database: Path, facts: Mapping[str, str]) -> None:
    """Add the facts of the run, name to value: versions, command line, machine.

    Raises RecordingError if the database is damaged.
    """
    rows = ({"name": name, "value": value} for name, value in facts.items())
    write_table(database, RUN_TABLE, {"name": "TEXT", "value": "TEXT"}, rows, key="name")


def write_kernels(database: Path, folder: Path) -> int:
    """Add the table of the kernels in a gathered folder. Returns their number.

    A kernel written by several processes is stored once; damaged files are left out. Raises
    RecordingError if the database is damaged.
    """
    rows = list(_kernels(folder))
    columns = {column.name: _TYPES[column.dtype] for column in KERNEL_CODE.columns}
    write_table(database, KERNELS_TABLE, columns, rows)
    return len(rows)


def _kernels(folder: Path) -> Iterator[Row]:
    """One row per kernel, by file name; the compiler's files come before a launcher's."""
    seen: set[tuple[object, ...]] = set()
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.name.endswith(_LOADED), path.name))
    for path in paths:
        row = kernel_row(path)
        if row is None:
            continue
        # The hash identifies source and options. Without one, compare all fields.
        key = (row["hash"],) if row["hash"] else tuple(row.values())
        if key not in seen:
            seen.add(key)
            yield row


def kernel_row(path: Path) -> Row | None:
    """The row of a kernel that the hooks in the program wrote; None if the file is damaged."""
    try:
        kernel = json.loads(path.read_bytes())
        arguments = kernel.get("arguments") or []
        keys = ("name", "type", "divisible_by_16")
        signature = [{key: argument[key] for key in keys} for argument in arguments]
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
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _packed(code: bytes | None) -> bytes | None:
    return packed(code) if code and len(code) <= MOST_BYTES else None


class SampledProcess(NamedTuple):
    """Samples (time of day, thread id, stack) and frames (stack, line, file, function)."""

    process_id: int
    samples: list[tuple[int, int, int]]
    frames: list[tuple[int, int, str, str]]


def write_python_samples(database: Path, folder: Path) -> int:
    """Add the samples in a gathered folder, if any, to the export. Returns their number.

    Raises RecordingError if the database is damaged.
    """
    processes = [sampled_process(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    if not processes:
        return 0
    samples: list[Row] = []
    frames: list[Row] = []
    stacks = 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            owners = global_pids(connection)
            for process in processes:
                owner = owners.get(process.process_id)
                if owner is None or not process.samples:
                    continue
                clock = sample_clock(connection, owner)
                if clock is not None:
                    time, thread, stack = np.array(process.samples, np.int64).T
                    columns = (clock.timeline_ns(time), owner | thread, stack + stacks)
                    cells = zip(*(column.tolist() for column in columns), strict=True)
                    samples += [{"start": s, "globalTid": t, "stack": n} for s, t, n in cells]
                rows = list(_frame_rows(process.frames, stacks))
                frames += rows
                stacks = max([row["stack"] + 1 for row in rows], default=stacks)
    except sqlite3.Error as error:
        raise _damaged(error) from error
    integers = dict.fromkeys(("start", "globalTid", "stack"), "INTEGER")
    write_table(database, SAMPLES, integers, samples)
    integers = dict.fromkeys(("stack", "depth", "line"), "INTEGER")
    write_table(database, FRAMES, {**integers, "file": "TEXT", "function": "TEXT"}, frames)
    return len(samples)


def sampled_process(path: Path) -> SampledProcess:
    """Read the samples of a process; the last line may be cut off."""
    number = path.name.partition("-")[0]
    process = SampledProcess(int(number) if number.isdecimal() else -1, [], [])
    for line in path.read_text("utf-8", "replace").split("\n"):
        kind, *cells = line.split("\t")
        try:
            if kind == "S":
                time, thread, stack = cells
                process.samples.append((int(time), int(thread), int(stack)))
            elif kind == "F":
                stack, number, file, function = cells
                process.frames.append((int(stack), int(number), file, function))
        except ValueError:
            continue
    return process


def _frame_rows(frames: Sequence[tuple[int, int, str, str]], first_stack: int) -> Iterator[Row]:
    last, depth = -1, 0
    for stack, line, file, function in frames:
        depth = depth + 1 if stack == last else 0
        last = stack
        where = {"file": file, "line": line, "function": function}
        yield {"stack": stack + first_stack, "depth": depth, **where}
