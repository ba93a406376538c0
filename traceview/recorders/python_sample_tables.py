"""Python stacks that the program sampled itself, and source lines: tables of the trace."""

from __future__ import annotations

import linecache
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from traceview.errors import RecordingError
from traceview.recorders.injected.traceview_injected.python_sampler import SUFFIX
from traceview.trace.load import load
from traceview.trace.nsys.own_samples import FRAMES, SAMPLES, SOURCE_LINES
from traceview.trace.nsys.sample_clock import global_pids, sample_clock
from traceview.trace.program_files import is_library

SOURCE_CHARACTERS = 120
_COLUMNS: dict[str, dict[str, Any]] = {
    SAMPLES: {"start": int, "globalTid": int, "stack": int},
    FRAMES: {"stack": int, "depth": int, "file": str, "line": int, "function": str},
    SOURCE_LINES: {"file": str, "line": int, "text": str},
}


class SampledProcess(NamedTuple):
    """What one process left: samples as (time of the day, thread id, stack), and frames."""

    process_id: int
    samples: list[tuple[int, int, int]]
    frames: list[tuple[int, int, str, str]]


def write_python_samples(database: Path, folder: Path) -> int:
    """Add the samples in a gathered folder, if any, to the export. Returns their number.

    Raises RecordingError if the database is damaged.
    """
    processes = [_process(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
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
        _write(database, SAMPLES, samples)
        _write(database, FRAMES, frames)
    except sqlite3.Error as error:
        raise _damaged(error) from error
    return len(samples)


def write_source_lines(database: Path) -> None:
    """Add the text of the program's lines that Python samples are at, while the files are there.

    Raises RecordingError if the database is damaged.
    """
    frames = load(database).recorded("python_frames")
    file, line = frames.texts("file"), frames["line"]
    own = [code for code, name in enumerate(file.values) if not is_library(str(name))]
    rows = np.flatnonzero(np.isin(file.codes, own) & ~frames.is_null("line"))
    lines = np.unique(np.stack([file.codes[rows], line[rows]]), axis=1)
    texts = [
        {"file": str(file.values[code]), "line": number, "text": text}
        for code, number in lines.T.tolist()
        if (text := _source(str(file.values[code]), number))
    ]
    if texts:
        try:
            _write(database, SOURCE_LINES, texts)
        except sqlite3.Error as error:
            raise _damaged(error) from error


def _source(file: str, line: int) -> str:
    text = " ".join(linecache.getline(file, line).split())
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain if len(plain) <= SOURCE_CHARACTERS else plain[: SOURCE_CHARACTERS - 1] + "…"


def _process(path: Path) -> SampledProcess:
    """What a process wrote; its last line may be cut off."""
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


def _write(database: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    # Imported late: it takes 0.3 s, which reading a trace should not pay.
    from sqlite_utils import Database

    store = Database(database)
    with closing(store.conn):
        table = store.table(name)
        table.create(_COLUMNS[name], replace=True)
        table.insert_all(rows)


def _damaged(error: sqlite3.Error) -> RecordingError:
    what = f"SQLite cannot read the export of nsys ({error})"
    return RecordingError(what, "run traceview doctor to test the export")
