"""Lines of the program's source files, as tables of the trace.

Every line in a Python stack is stored; the costliest lines with their neighbours.
"""

from __future__ import annotations

import io
import linecache
import sqlite3
import tokenize
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.recorders.tables.python_sample_tables import damaged_export, write_table
from traceview.tables import NULL
from traceview.trace import Trace, program_files
from traceview.trace.load import load
from traceview.trace.nsys.added_tables import EXCERPTS_TABLE, LINE_CHARACTERS, SOURCE_LINES

AROUND = 4
"""Lines before and after a named line that are stored with it."""
MOST_LINES = 400
MOST_BYTES = 1 << 20
SOURCE_CHARACTERS = 120
_COLUMNS = {"file": str, "line": int, "text": str}

Row = dict[str, object]


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
    try:
        _write(database, SOURCE_LINES, list(_stack_lines(trace)))
        if excerpts:
            lines = chain.from_iterable(zip_longest(_waiting(trace), _sampled(trace)))
            _write(database, EXCERPTS_TABLE, excerpt_rows(filter(None, lines), folders))
    except sqlite3.Error as error:
        raise damaged_export(error) from error


def _write(database: Path, name: str, rows: Sequence[Row]) -> None:
    if rows:
        write_table(database, name, _COLUMNS, rows)


def _stack_lines(trace: Trace) -> Iterator[Row]:
    frames = trace.recorded("python_frames")
    file, line = frames.texts("file"), frames["line"]
    own = [code for code, name in enumerate(file.values) if not program_files.is_library(str(name))]
    rows = np.flatnonzero(np.isin(file.codes, own) & ~frames.is_null("line"))
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
    each = groups.group(file.codes[rows], marks["line"][rows])
    end = np.where(marks["end_ns"] == NULL, marks["start_ns"], marks["end_ns"])
    time = groups.sums(each, (end - marks["start_ns"])[rows])
    for row in rows[each.first[groups.most_first(time)]].tolist():
        yield NamedLine(str(file[row]), int(marks["line"][row]), source[row])


def _sampled(trace: Trace) -> Iterator[NamedLine]:
    """The program's innermost line of each Python stack, most sampled lines first."""
    frames, stacks = trace.recorded("python_frames"), trace.recorded("python_samples")["stack"]
    file, line, stack = frames.texts("file"), frames["line"], frames["stack"]
    own = [code for code, name in enumerate(file.values) if not program_files.is_library(str(name))]
    rows = np.flatnonzero(np.isin(file.codes, own) & ~frames.is_null("line"))
    rows = rows[np.append(True, np.diff(stack[rows]) != 0)[: len(rows)]]
    each = groups.group(file.codes[rows], line[rows])
    samples = np.bincount(stacks, minlength=int(stack.max(initial=0)) + 1)
    often = groups.sums(each, samples[stack[rows]])
    for row in rows[each.first[groups.most_first(often)]].tolist():
        yield NamedLine(str(file[row]), int(line[row]), None)


def excerpt_rows(lines: Iterator[NamedLine], folders: Sequence[Path]) -> list[Row]:
    """Rows for the lines and their neighbours, each line once, at most MOST_LINES."""
    known: dict[str, list[str] | None] = {}
    rows: dict[tuple[str, int], Row] = {}
    for each in lines:
        if each.file not in known:
            known[each.file] = _text_of(each.file, folders)
        text = known[each.file]
        if text is None or not _is_there(each, text):
            continue
        first, last = max(1, each.line - AROUND), min(len(text), each.line + AROUND)
        for number in range(first, last + 1):
            row: Row = {"file": each.file, "line": number, "text": _kept(text[number - 1])}
            rows.setdefault((each.file, number), row)
        if len(rows) >= MOST_LINES:
            break
    return list(rows.values())[:MOST_LINES]


def _is_there(named: NamedLine, text: Sequence[str]) -> bool:
    """Whether the file has the line, with the text that the program had there."""
    if not 1 <= named.line <= len(text):
        return False
    return named.source is None or flat(text[named.line - 1]) == flat(named.source)


def _text_of(file: str, folders: Sequence[Path]) -> list[str] | None:
    """The lines of a file of the program; None for a library's file or an unreadable one."""
    for path in (folder / file for folder in folders):
        try:
            if program_files.is_library(str(path.resolve())) or not path.is_file():
                continue
            if path.stat().st_size <= MOST_BYTES:
                return _decoded(path.read_bytes())
        except (OSError, ValueError, SyntaxError, LookupError):
            continue
    return None


def _decoded(content: bytes) -> list[str]:
    """The lines of Python source, in the encoding that it declares."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    text = content.decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def flat(text: str) -> str:
    """A line without indentation, printable and cut to SOURCE_CHARACTERS, as marks store it."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return _cut(" ".join(plain.split()), SOURCE_CHARACTERS)


def _kept(text: str) -> str:
    """A line with its indentation, printable."""
    plain = "".join(c if c.isprintable() else " " for c in text.expandtabs(4))
    return _cut(plain.rstrip(), LINE_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
