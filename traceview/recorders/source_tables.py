"""Lines of the program's source files, as tables of the trace.

Every line in a Python stack is stored; the costliest lines with their neighbours.
"""

from __future__ import annotations

import io
import linecache
import tokenize
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.recorders.written_tables import Row, write_table
from traceview.tables import NULL, Integers, Table
from traceview.trace import Trace, program_files
from traceview.trace.load import load
from traceview.trace.nsys.added_tables import EXCERPTS_TABLE, LINE_CHARACTERS, SOURCE_LINES

AROUND = 4
"""Lines before and after a named line that are stored with it."""
MOST_LINES = 400
MOST_BYTES = 1 << 20
SOURCE_CHARACTERS = 120
_COLUMNS = {"file": "TEXT", "line": "INTEGER", "text": "TEXT"}


class NamedLine(NamedTuple):
    """A line that a recording names; `source` is its text as the program had it, if noted."""

    file: str
    line: int
    source: str | None


def write_source_tables(database: Path, folders: Sequence[Path], *, excerpts: bool) -> None:
    """Add the source lines of Python stacks; with `excerpts`, also those around costly lines.

    File names are relative to `folders`. Files that are missing, have changed, are longer than
    MOST_BYTES or are not text are left out. Raises RecordingError if the database is
    damaged.
    """
    trace = load(database)
    tables: dict[str, Sequence[Row]] = {SOURCE_LINES: list(_stack_lines(trace))}
    if excerpts:
        lines = chain.from_iterable(zip_longest(_waiting(trace), _sampled(trace)))
        tables[EXCERPTS_TABLE] = excerpt_rows(filter(None, lines), folders)
    for name, rows in tables.items():
        if rows:
            write_table(database, name, _COLUMNS, rows)


def _program_frames(frames: Table) -> Integers:
    """The rows of python_frames with a line of the program itself."""
    file = frames.texts("file")
    own = [code for code, name in enumerate(file.values) if not program_files.is_library(str(name))]
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
            if program_files.is_library(str(path.resolve())) or not path.is_file():
                continue
            if path.stat().st_size <= MOST_BYTES:
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
    return _cut(_printable(text.expandtabs(4)).rstrip(), LINE_CHARACTERS)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
