"""Python stacks that the program sampled itself, as tables of the trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from traceview.errors import RecordingError
from traceview.recorders.injected.traceview_injected.python_sampler import SUFFIX
from traceview.recorders.tables.run_table import export_database
from traceview.trace.nsys.added_tables import FRAMES, SAMPLES
from traceview.trace.nsys.sample_clock import global_pids, sample_clock

_COLUMNS: dict[str, dict[str, Any]] = {
    SAMPLES: {"start": int, "globalTid": int, "stack": int},
    FRAMES: {"stack": int, "depth": int, "file": str, "line": int, "function": str},
}


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
    try:
        with closing(sqlite3.connect(database)) as connection:
            owners = global_pids(connection)
            samples, frames, stacks = [], [], 0
            for process in processes:
                owner = owners.get(process.process_id)
                if owner is None or not process.samples:
                    continue
                samples += _sample_rows(connection, process, owner, stacks)
                rows = list(_frame_rows(process.frames, stacks))
                frames += rows
                stacks = max([row["stack"] + 1 for row in rows], default=stacks)
        for name, table in ((SAMPLES, samples), (FRAMES, frames)):
            write_table(database, name, _COLUMNS[name], table)
    except sqlite3.Error as error:
        raise damaged_export(error) from error
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


def _sample_rows(
    connection: sqlite3.Connection, process: SampledProcess, owner: int, first_stack: int
) -> list[dict[str, int]]:
    clock = sample_clock(connection, owner)
    if clock is None:
        return []
    time, thread, stack = np.array(process.samples, np.int64).T
    start = clock.timeline_ns(time)
    rows = zip(start.tolist(), (owner | thread).tolist(), (stack + first_stack).tolist(),
               strict=True)  # fmt: skip
    return [{"start": a, "globalTid": b, "stack": c} for a, b, c in rows]


def _frame_rows(
    frames: Sequence[tuple[int, int, str, str]], first_stack: int
) -> Iterator[dict[str, Any]]:
    last, depth = -1, 0
    for stack, line, file, function in frames:
        depth = depth + 1 if stack == last else 0
        last = stack
        where = {"file": file, "line": line, "function": function}
        yield {"stack": stack + first_stack, "depth": depth, **where}


def write_table(
    database: Path, name: str, columns: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> None:
    """Add a table to an export. Raises sqlite3.Error if the database is damaged."""
    store = export_database(database)
    with closing(store.conn):
        table = store.table(name)
        table.create(columns, replace=True)
        table.insert_all(rows)


def damaged_export(error: sqlite3.Error) -> RecordingError:
    """The error for an export that SQLite cannot read."""
    what = f"SQLite cannot read the export of nsys ({error})"
    return RecordingError(what, "run traceview doctor to test the export")
