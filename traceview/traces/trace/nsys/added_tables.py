"""The tables that `traceview record` adds to an export, and Python stacks on its clock."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.tables import NULL, Array, Column, Integers, Mask, Texts, null_of, object_array
from traceview.base.tables.arrays import numbered
from traceview.traces.trace.nsys.processes import process_of
from traceview.traces.trace.nsys.ranges import CLOCK
from traceview.traces.trace.nsys.rows import UNNAMED, ExportTable, filled, first_of
from traceview.traces.trace.nsys.tables import Reader
from traceview.traces.trace.schema import KERNEL_CODE
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.staged import INT32, Staged, absent_texts, numbers_of, texts_of

if TYPE_CHECKING:
    from traceview.kernels.ptx.model import Compiled

# TRACEVIEW_KERNELS: the kernel code that `traceview record` stored in the trace.
#
# Code stays compressed until it is needed. A trace is untrusted input: the decompressed size is
# bounded, and a field of the wrong type counts as absent.

KERNELS_TABLE = "TRACEVIEW_KERNELS"
# Far beyond any real kernel.
MOST_BYTES = 64 << 20


def staged(database: Database) -> Staged | None:
    """The columns of the kernel_code table; None if the trace has no kernel code.

    Raises sqlite3.Error if the table is damaged.
    """
    if KERNELS_TABLE not in database.tables:
        return None
    columns = KERNEL_CODE.columns
    lines = database.lines(KERNELS_TABLE, [column.name for column in columns])
    named = [line for line in lines if isinstance(line[0], str)]
    cells = zip(*named, strict=True) if named else ((),) * len(columns)
    return {
        column.name: _column(column, list(values))
        for column, values in zip(columns, cells, strict=True)
    }


def packed(code: bytes) -> bytes:
    """Compress code for the table."""
    return zlib.compress(code, 9)


_LONGEST = """
    SELECT text.value FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
    JOIN StringIds AS text ON text.id = coalesce(kernel.mangledName, kernel.demangledName)
    GROUP BY text.id ORDER BY sum(kernel.end - kernel.start) DESC LIMIT ?
"""


def longest_kernels(path: Path, most: int) -> list[str]:
    """The symbols of the kernels of an export that take most time; none where it has none."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return [str(name) for (name,) in connection.execute(_LONGEST, (most,))]
    except sqlite3.Error:
        return []


def code_rows(kernels: Sequence[Compiled]) -> list[dict[str, Any]]:
    """Rows of the table for kernels of which code alone is known, as of what nvcc built."""
    # A file with many kernels is packed once.
    codes = {kernel.cubin for kernel in kernels if kernel.cubin}
    codes |= {kernel.ptx.encode() for kernel in kernels if kernel.ptx}
    blobs = {code: packed(code) for code in codes}
    return [
        {
            "name": kernel.name,
            "arch": kernel.arch,
            "signature": "[]",
            "constexprs": "{}",
            "options": "{}",
            "source_file": kernel.source_file,
            "ptx": blobs.get((kernel.ptx or "").encode()),
            "cubin": blobs.get(kernel.cubin or b""),
        }
        for kernel in kernels
    ]


def unpacked(blob: object) -> bytes | None:
    """Decompress a blob; None if it is absent, damaged, or larger than MOST_BYTES."""
    if not isinstance(blob, bytes):
        return None
    unpacker = zlib.decompressobj()
    try:
        code = unpacker.decompress(blob, MOST_BYTES + 1)
    except zlib.error:
        return None
    return code if unpacker.eof and len(code) <= MOST_BYTES else None


def _column(column: Column, cells: Sequence[object]) -> Array | Texts:
    """The cells as a column; one of a wrong type counts as absent."""
    if column.dtype == "text":
        absent = None if column.nullable else ""
        return Texts.of([cell if isinstance(cell, str) else absent for cell in cells])
    if column.dtype == "bytes":
        return object_array([cell if isinstance(cell, bytes) else None for cell in cells])
    dtype = np.dtype(column.dtype)
    most, null = np.iinfo(dtype).max, null_of(dtype)
    sound = [c if isinstance(c, int) and 0 <= c <= most else null for c in cells]
    return np.array(sound, dtype)


# TRACEVIEW_SOURCE_EXCERPTS: lines of the program that `traceview record` stored in the trace.

EXCERPTS_TABLE = "TRACEVIEW_SOURCE_EXCERPTS"
LINE_CHARACTERS = 200


def source_excerpts(database: Database) -> Staged | None:
    """The columns of the source_lines table; None if the trace has none.

    Raises sqlite3.Error if the table is damaged.
    """
    if EXCERPTS_TABLE not in database.tables:
        return None
    rows = [
        (file, line, text[:LINE_CHARACTERS])
        for file, line, text in database.lines(EXCERPTS_TABLE, ("file", "line", "text"))
        if isinstance(file, str) and isinstance(text, str)
        if isinstance(line, int) and 0 < line <= INT32.max
    ]
    return {
        "file": Texts.of(file for file, _, _ in rows),
        "line": np.array([line for _, line, _ in rows], np.int32),
        "text": Texts.of(text for _, _, text in rows),
    }


# TRACEVIEW_ tables of Python stacks, as `traceview record` wrote them into the trace.

SAMPLES = "TRACEVIEW_PYTHON_SAMPLES"
FRAMES = "TRACEVIEW_PYTHON_FRAMES"
SOURCE_LINES = "TRACEVIEW_SOURCE_LINES"
OWN_SAMPLES = ExportTable(SAMPLES, ("start", "globalTid", "stack"))
EVENTS = "TRACEVIEW_PYTHON_EVENTS"
EVENT_TEXTS = ("kind", "file", "function", "source", "reason")
OWN_EVENTS = ExportTable(EVENTS, ("start", "end", "globalTid", "line", "guards"), (), EVENT_TEXTS)
OWN_FRAMES = ExportTable(FRAMES, ("stack", "depth", "line"), (), ("file", "function"))


def own_samples(reader: Reader) -> tuple[Staged, Staged] | None:
    """The staged python_samples and python_frames; None if the program did not sample itself.

    A sample whose stack has no frame is left out.
    """
    samples, frames = reader.export.rows(OWN_SAMPLES), reader.export.rows(OWN_FRAMES)
    if samples is None or frames is None:
        return None
    stack, depth = frames.integer("stack"), frames.integer("depth")
    order = np.lexsort((depth, stack))
    distinct, number = np.unique(stack[order], return_inverse=True)
    samples = samples.where(np.isin(samples.integer("stack"), distinct))
    time = samples.nullable("start")
    thread, process = reader.owners.threads(samples)
    by_time = np.argsort(time, kind="stable")
    place = np.searchsorted(distinct, samples.integer("stack")).astype(np.int32)
    count = len(place)
    first = np.searchsorted(number, np.arange(len(distinct)))
    line = frames.integer("line")[order]
    return (
        {
            "time_ns": time[by_time],
            "process": process[by_time],
            "thread": thread[by_time],
            "stack": place[by_time],
            "state": absent_texts(count),
        },
        {
            "stack": number.astype(np.int32),
            "depth": (np.arange(len(number)) - first[number]).astype(np.int32),
            "file": filled(frames.texts("file"), UNNAMED).take(order),
            "line": np.where((line > 0) & (line < INT32.max), line, INT32.min).astype(np.int32),
            "function": filled(frames.texts("function"), UNNAMED).take(order),
            "source": absent_texts(len(number)),
        },
    )


def own_events(reader: Reader) -> Staged | None:
    """The staged python_events; None if the program noted none."""
    rows = reader.export.rows(OWN_EVENTS)
    if rows is None:
        return None
    # Workers that load data collect garbage, too, and are no part of the program's own time.
    rows = rows.where(reader.owners.has_processes(rows))
    line, guards = rows.integer("line"), rows.integer("guards")
    texts = {name: rows.texts(name) for name in EVENT_TEXTS}
    return {
        **reader.on_thread(rows),
        **texts,
        "kind": filled(texts["kind"], UNNAMED),
        "guards_ns": np.where(guards > 0, guards, NULL),
        "line": np.where((line > 0) & (line < INT32.max), line, INT32.min).astype(np.int32),
    }


def with_sources(database: Database, frames: Staged) -> Staged:
    """Frames with the text of their lines, where `traceview record` stored it."""
    rows = database.lines(SOURCE_LINES, ("file", "line", "text"))
    if not rows:
        return frames
    stored = {(name, number): text for name, number, text in rows if isinstance(text, str)}
    file = texts_of(frames, "file")
    pairs = np.stack([file.codes.astype(np.int64), numbers_of(frames, "line").astype(np.int64)])
    distinct, code = np.unique(pairs, axis=1, return_inverse=True)
    texts = [stored.get((str(file.values[row]), number)) for row, number in distinct.T.tolist()]
    source = Texts(code.reshape(-1).astype(np.int32), object_array(texts)).map(texts)
    return {**frames, "source": source}


# Python stack samples of nsys.
#
# nsys stores each sample as an NVTX mark of a domain of its own, whose JSON text has the stack:
# `{"Python Periodic Sampling":{…,"Thread state":"Running","Frames":[{"Function":387,"File":325,
# "Line":463},…]}}`, innermost frame first, with names as ids of StringIds. Only `nsys export
# --include-json=true` (2024 and newer) writes that text.

PERIODIC = "Python Periodic Sampling"
DOMAINS = frozenset({PERIODIC, "Python Backtrace on CUDA"})
"""NVTX domains that nsys writes Python stacks to."""
MARKS = ExportTable(
    "NVTX_EVENTS", ("start",), ("globalTid", "domainId", "jsonTextId"), ("jsonText",)
)
# The form that nsys writes; any other is left to the json module, which takes 20 times as long.
_FRAME = r'\{"Function":\d{1,15},"File":\d{1,15},"Line":\d{1,9}\}'
_SAMPLE = re.compile(
    r'\{"[\w ]+":\{"Thread state ID":-?\d+,"Thread state":"([^"\\]*)","Frames count":\d+,'
    rf'"Frames":\[((?:{_FRAME}(?:,{_FRAME})*)?)\]\}}\}}'
)
_NOT_DIGITS = {code: " " for code in range(128) if not chr(code).isdigit()}
MOST_FRAMES = 4_096
"""Frames per stack that are read, innermost first."""
NOT_EXPORTED = (
    "the recording has Python stack samples, but the export does not contain them; export it again "
    "with: nsys export --type sqlite --include-json=true FILE.nsys-rep"
)


def python_samples(reader: Reader, sampled: Mask) -> tuple[Staged, Staged] | None:
    """The staged python_samples and python_frames; None if no stacks were exported.

    `sampled` is True for the rows of NVTX_EVENTS that are marks of the periodic sampler.
    """
    if not sampled.any():
        return None
    marks = reader.export.rows(MARKS)
    if marks is None:
        return None
    marks = marks.where(sampled)
    texts = first_of(marks.texts("jsonText"), reader.names.texts(marks.numbers("jsonTextId")))
    if not (texts.codes >= 0).any():
        reader.export.warnings.append(NOT_EXPORTED)
        return None
    stacks = _Stacks()
    used = groups.different(texts.codes[texts.codes >= 0])
    stack_of, state_of = (np.full(len(texts.values) + 1, -1, np.int32) for _ in range(2))
    parsed = [stacks.parsed(str(texts.values[code])) for code in used.tolist()]
    stack_of[used], state_of[used] = np.array(parsed, np.int32).T
    kept = stack_of[texts.codes] >= 0
    if not kept.all():
        number = int((~kept).sum())
        reader.export.warnings.append(f"{number} Python stack samples could not be read")
    states = Texts(state_of[texts.codes[kept]], np.array([*stacks.states, None], object)[:-1])
    stack = stack_of[texts.codes[kept]]
    marks = marks.where(kept)
    time = marks.nullable("start")
    thread, process = reader.owners.threads(marks)
    order = np.argsort(time, kind="stable")
    samples: Staged = {
        "time_ns": time[order],
        "process": process[order],
        "thread": thread[order],
        "stack": stack[order],
        "state": states.take(order),
    }
    return samples, stacks.frames(reader)


@dataclass
class _Stacks:
    """Distinct stacks, in order of appearance, and the names of thread states."""

    states: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str | tuple[tuple[int, int, int], ...], int] = field(default_factory=dict)
    # Names that the JSON text contains in place of ids; they get ids below zero.
    _names: list[str] = field(default_factory=list)

    def parsed(self, text: str) -> tuple[int, int]:
        """Numbers of the stack and of the thread state of a sample; −1 for a damaged one."""
        match = _SAMPLE.fullmatch(text)
        if match:
            state, stack = match[1], self._number(match[2])
        else:
            state, stack = self._parsed_slowly(text)
        return stack, self.states.setdefault(state, len(self.states)) if state else -1

    def _number(self, frames: str | tuple[tuple[int, int, int], ...]) -> int:
        return self._numbers.setdefault(frames, len(self._numbers))

    def _parsed_slowly(self, text: str) -> tuple[str, int]:
        try:
            sample = json.loads(text)
            if PERIODIC in sample:
                sample = sample[PERIODIC]
            frames = tuple(
                (self._id(frame["Function"]), self._id(frame["File"]), int(frame["Line"]))
                for frame in sample["Frames"]
            )
            return str(sample.get("Thread state", "")), self._number(frames)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return "", -1

    def _id(self, name: object) -> int:
        if isinstance(name, str):
            self._names.append(name)
            return -len(self._names)
        return int(name) if isinstance(name, int) and name >= 0 else 0

    def frames(self, reader: Reader) -> Staged:
        """The staged python_frames."""
        parts = [_frame_numbers(frames) for frames in self._numbers]
        counts = np.array([len(part) for part in parts], np.int64)
        every = np.concatenate([np.zeros((0, 3), np.int64), *parts])
        first = np.cumsum(counts) - counts
        line = every[:, 2]
        return {
            "stack": np.repeat(np.arange(len(parts), dtype=np.int32), counts),
            "depth": (np.arange(len(every)) - np.repeat(first, counts)).astype(np.int32),
            "file": self._texts(reader, every[:, 1]),
            "line": np.where((line > 0) & (line < INT32.max), line, INT32.min).astype(np.int32),
            "function": self._texts(reader, every[:, 0]),
            "source": absent_texts(len(every)),
        }

    def _texts(self, reader: Reader, ids: Integers) -> Texts:
        """The names of `ids`, unescaped: nsys escapes them for HTML, as in `&lt;module&gt;`."""
        from html import unescape

        distinct, codes = numbered(ids)
        stored = reader.names.of(distinct[distinct >= 0])
        own = [self._names[-1 - name_id] for name_id in distinct[distinct < 0].tolist()]
        names = [unescape(name) for name in (*own, *stored)]
        return Texts(codes, np.array([*names, None], object)[:-1]).map(names)


def _frame_numbers(frames: str | Sequence[tuple[int, int, int]]) -> Integers:
    """Ids of function and file, and the line, one row per frame, innermost first."""
    if isinstance(frames, str):
        flat = np.array(frames.translate(_NOT_DIGITS).split(), np.int64)
        return flat.reshape(-1, 3)[:MOST_FRAMES]
    return np.array(frames, np.int64).reshape(-1, 3)[:MOST_FRAMES]


class SampleClock(NamedTuple):
    """Wall-clock times of one process, and the times on the timeline at the same moments."""

    of_day_ns: Integers
    on_timeline_ns: Integers

    def timeline_ns(self, of_day_ns: Integers) -> Integers:
        """Wall-clock times converted to the timeline; beyond the known moments the offset stays."""
        offset = self.of_day_ns - self.on_timeline_ns
        # Relative to the first time: floats cannot hold nanoseconds since 1970.
        drift = np.interp(
            of_day_ns - self.of_day_ns[0], self.of_day_ns - self.of_day_ns[0], offset - offset[0]
        )
        return of_day_ns - offset[0] - np.rint(drift).astype(np.int64)

    def one_ns(self, of_day_ns: int) -> int:
        """One wall-clock time on the timeline."""
        return int(self.timeline_ns(np.array([of_day_ns], np.int64))[0])


def global_pids(connection: sqlite3.Connection) -> dict[int, int]:
    """The globalPid of each process in the export, by process id."""
    if not _has(connection, "PROCESSES"):
        return {}
    rows = connection.execute("SELECT globalPid FROM PROCESSES")
    return {process_of(pid): pid for (pid,) in rows if isinstance(pid, int)}


def _has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def sample_clock(connection: sqlite3.Connection, owner: int) -> SampleClock | None:
    """The clock of process `owner` (globalPid): from its marks, else from the recording's start.

    None if the export has neither.
    """
    marks: list[tuple[str, int]] = []
    if _has(connection, "NVTX_EVENTS"):
        marks = connection.execute(
            "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId)) AS mark, start "
            "FROM NVTX_EVENTS WHERE globalTid >> 24 = ? AND mark LIKE ? ORDER BY start",
            (owner >> 24, f"{CLOCK}%"),
        ).fetchall()
    known = [(int(text.removeprefix(CLOCK)), start) for text, start in marks]
    if not known and _has(connection, "TARGET_INFO_SESSION_START_TIME"):
        rows = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        known = [(began, 0) for (began,) in rows if isinstance(began, int)][:1]
    return SampleClock(*np.array(known, np.int64).T) if known else None
