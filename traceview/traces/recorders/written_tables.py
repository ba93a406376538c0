"""Tables that a recorder adds to a trace: facts of the run, kernels, samples, source lines."""

from __future__ import annotations

import binascii
import io
import json
import linecache
import sqlite3
import sys
import threading
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.errors import RecordingError
from traceview.base.tables import NULL, Integers, Table
from traceview.traces.recorders.injected.traceview_injected import python_events
from traceview.traces.recorders.injected.traceview_injected.compilations import BREAK
from traceview.traces.recorders.injected.traceview_injected.python_events import MODULE
from traceview.traces.recorders.injected.traceview_injected.python_sampler import SUFFIX
from traceview.traces.trace import Trace, model
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys import added_tables
from traceview.traces.trace.schema import KERNEL_CODE

if TYPE_CHECKING:
    from sqlite_utils import Database

    from traceview.kernels.ptx.model import Compiled


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
    _write_code_rows(database, rows)
    return len(rows)


def write_code(database: Path, kernels: Sequence[Compiled]) -> None:
    """Add the table of kernels of which code alone is known, as `write_kernels` does."""
    _write_code_rows(database, added_tables.code_rows(kernels))


def _write_code_rows(database: Path, rows: Sequence[Row]) -> None:
    columns = {column.name: _TYPES[column.dtype] for column in KERNEL_CODE.columns}
    write_table(database, added_tables.KERNELS_TABLE, columns, rows)


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
    return added_tables.packed(code) if code and len(code) <= added_tables.MOST_BYTES else None


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
            owners, end_ns = added_tables.global_pids(connection), _recorded_ns(connection)
            for process in processes:
                owner = owners.get(process.process_id)
                if owner is None or not process.samples:
                    continue
                clock = added_tables.sample_clock(connection, owner)
                if clock is not None:
                    time, thread, stack = np.array(process.samples, np.int64).T
                    time = clock.timeline_ns(time)
                    # A part of a program may be recorded, while the whole is sampled.
                    inside = (time >= 0) & (time <= end_ns)
                    columns = (time[inside], (owner | thread)[inside], (stack + stacks)[inside])
                    cells = zip(*(column.tolist() for column in columns), strict=True)
                    samples += [{"start": s, "globalTid": t, "stack": n} for s, t, n in cells]
                rows = list(_frame_rows(process.frames, stacks))
                frames += rows
                stacks = max([row["stack"] + 1 for row in rows], default=stacks)
    except sqlite3.Error as error:
        raise _damaged(error) from error
    integers = dict.fromkeys(("start", "globalTid", "stack"), "INTEGER")
    write_table(database, added_tables.SAMPLES, integers, samples)
    integers = dict.fromkeys(("stack", "depth", "line"), "INTEGER")
    write_table(
        database, added_tables.FRAMES, {**integers, "file": "TEXT", "function": "TEXT"}, frames
    )
    return len(samples)


def _recorded_ns(connection: sqlite3.Connection) -> int:
    """The length of the recording; time without end where the export has none."""
    try:
        [longest] = connection.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
    except sqlite3.OperationalError:
        longest = None
    return longest if isinstance(longest, int) and longest > 0 else int(np.iinfo(np.int64).max)


def write_python_events(database: Path, folder: Path) -> None:
    """Add the events in a gathered folder, if any, to the export.

    Raises RecordingError if the database is damaged.
    """
    rows: list[Row] = []
    try:
        with closing(sqlite3.connect(database)) as connection:
            owners, last_ns = added_tables.global_pids(connection), _recorded_ns(connection)
            for path in sorted(folder.glob(f"*{python_events.SUFFIX}")):
                owner = owners.get(int(path.stem))
                clock = None if owner is None else added_tables.sample_clock(connection, owner)
                if owner is None or clock is None:
                    continue
                for event in recorded_events(path, clock.one_ns, last_ns):
                    rows.append({**event, "globalTid": owner | event["thread"]})
    except sqlite3.Error as error:
        raise _damaged(error) from error
    if rows:
        integers = dict.fromkeys(("start", "end", "globalTid", "line", "guards"), "INTEGER")
        write_table(
            database,
            added_tables.EVENTS,
            {**integers, **dict.fromkeys(added_tables.EVENT_TEXTS, "TEXT")},
            rows,
        )


def recorded_events(
    path: Path, timeline_ns: Callable[[int], int], last_ns: int
) -> Iterator[dict[str, Any]]:
    """The events of a process on the timeline, as far as they lie between 0 and `last_ns`.

    Graph breaks and calls of modules come again and again, so that earlier ones are kept, at 0. The
    last line may be cut off.
    """
    for line in path.read_text("utf-8", "replace").split("\n"):
        cells = line.split("\t")
        if len(cells) != len(python_events.FIELDS) or not all(map(str.isdecimal, cells[:5])):
            continue
        event: dict[str, Any] = dict(zip(python_events.FIELDS, cells, strict=True))
        event |= {name: text or None for name, text in event.items()}
        event |= {name: int(event[name]) for name in python_events.NUMBERS}
        start, end = (min(max(timeline_ns(event[name]), 0), last_ns) for name in ("start", "end"))
        if end > start or event["kind"] in (BREAK, MODULE):
            yield {**event, "start": start, "end": end}


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


# Lines of the program's source files, as tables of the trace.
#
# Every line in a Python stack is stored; the costliest lines with their neighbours.

AROUND = 4
"""Lines before and after a named line that are stored with it."""
MOST_LINES = 400
MOST_SOURCE_BYTES = 1 << 20
SOURCE_CHARACTERS = 120
_COLUMNS = {"file": "TEXT", "line": "INTEGER", "text": "TEXT"}


class NamedLine(NamedTuple):
    """A line that a recording names; `source` is its text as the program had it, if noted."""

    file: str
    line: int
    source: str | None


def write_source_tables(database: Path, folders: Sequence[Path]) -> None:
    """Add the source lines of Python stacks, and those around costly lines.

    File names are relative to `folders`. Files that are missing, have changed, are longer than
    MOST_SOURCE_BYTES or are not text are left out. Raises RecordingError if the database is
    damaged.
    """
    trace = load(database)
    lines = chain.from_iterable(zip_longest(_waiting(trace), _sampled(trace)))
    tables: dict[str, Sequence[Row]] = {
        added_tables.SOURCE_LINES: list(_stack_lines(trace)),
        added_tables.EXCERPTS_TABLE: excerpt_rows(filter(None, lines), folders),
    }
    for name, rows in tables.items():
        if rows:
            write_table(database, name, _COLUMNS, rows)


def _program_frames(frames: Table) -> Integers:
    """The rows of python_frames with a line of the program itself."""
    file = frames.texts("file")
    own = [code for code, name in enumerate(file.values) if not model.is_library(str(name))]
    return np.flatnonzero(np.isin(file.codes, own) & ~frames.is_null("line"))


def _stack_lines(trace: Trace) -> Iterator[Row]:
    frames = trace.recorded("python_frames")
    file, line, rows = frames.texts("file"), frames["line"], _program_frames(frames)
    lines = np.unique(np.stack([file.codes[rows], line[rows]]), axis=1)
    for code, number in lines.T.tolist():
        name = str(file.values[code])
        if text := flat(linecache.getline(name, number)):
            yield {"file": name, "line": number, "text": text}


def _waiting(trace: Trace) -> Iterator[NamedLine]:
    """The lines of sync sites, the longest wait first."""
    marks = trace.recorded("call_sites")
    file, source = marks.texts("file"), marks.texts("source")
    rows = np.flatnonzero((file.codes >= 0) & ~marks.is_null("line"))
    lines = groups.group(file.codes[rows], marks["line"][rows])
    end = np.where(marks["end_ns"] == NULL, marks["start_ns"], marks["end_ns"])
    time = groups.sums(lines, (end - marks["start_ns"])[rows])
    for row in rows[lines.first[groups.most_first(time)]].tolist():
        yield NamedLine(str(file[row]), int(marks["line"][row]), source[row])


def _sampled(trace: Trace) -> Iterator[NamedLine]:
    """The program's innermost line of each Python stack, most sampled lines first."""
    frames, stacks = trace.recorded("python_frames"), trace.recorded("python_samples")["stack"]
    file, line, stack = frames.texts("file"), frames["line"], frames["stack"]
    rows = _program_frames(frames)
    rows = rows[np.append(True, np.diff(stack[rows]) != 0)[: len(rows)]]
    lines = groups.group(file.codes[rows], line[rows])
    samples = np.bincount(stacks, minlength=int(stack.max(initial=0)) + 1)
    often = groups.sums(lines, samples[stack[rows]])
    for row in rows[lines.first[groups.most_first(often)]].tolist():
        yield NamedLine(str(file[row]), int(line[row]), None)


def excerpt_rows(lines: Iterator[NamedLine], folders: Sequence[Path]) -> list[Row]:
    """Rows for the lines and their neighbours, each line once, at most MOST_LINES."""
    texts: dict[str, list[str] | None] = {}
    rows: dict[tuple[str, int], Row] = {}
    for file, line, source in lines:
        if file not in texts:
            texts[file] = _text_of(file, folders)
        text = texts[file]
        # The file may have changed since: then it has another text in the line, or ends before it.
        if text is None or not 1 <= line <= len(text):
            continue
        if source is not None and flat(text[line - 1]) != flat(source):
            continue
        for number in range(max(1, line - AROUND), min(len(text), line + AROUND) + 1):
            row = {"file": file, "line": number, "text": _kept(text[number - 1])}
            rows.setdefault((file, number), row)
        if len(rows) >= MOST_LINES:
            break
    return list(rows.values())[:MOST_LINES]


def _text_of(file: str, folders: Sequence[Path]) -> list[str] | None:
    """The lines of a file of the program; None for a library's file or an unreadable one."""
    for path in (folder / file for folder in folders):
        try:
            if model.is_library(str(path.resolve())) or not path.is_file():
                continue
            if path.stat().st_size <= MOST_SOURCE_BYTES:
                content = path.read_bytes()
                # Python source declares its encoding.
                encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
                decoded = content.decode(encoding, "replace")
                return decoded.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        except (OSError, ValueError, SyntaxError, LookupError):
            continue
    return None


def flat(text: str) -> str:
    """A line without indentation, printable and cut to SOURCE_CHARACTERS, as marks store it."""
    return _cut(" ".join(_printable(text).split()), SOURCE_CHARACTERS)


def _kept(text: str) -> str:
    """A line with its indentation, printable."""
    return _cut(_printable(text.expandtabs(4)).rstrip(), added_tables.LINE_CHARACTERS)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
