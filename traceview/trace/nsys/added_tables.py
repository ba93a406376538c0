"""The tables that `traceview record` adds to a trace: code of kernels, source lines, samples."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from traceview.tables import Array, Column, Texts, null_of, object_array
from traceview.trace.nsys.names import UNNAMED, filled
from traceview.trace.nsys.rows import ExportTable
from traceview.trace.nsys.tables import Reader
from traceview.trace.schema.program import KERNEL_CODE
from traceview.trace.sqlite.file import Database
from traceview.trace.staged import INT32, Staged, absent_texts, numbers_of, texts_of

# TRACEVIEW_KERNELS: the kernel code that `traceview record` stored in the trace.
#
# Code stays compressed until it is needed. A trace is untrusted input: the decompressed size is
# bounded, and a field of the wrong type counts as absent.

KERNELS_TABLE = "TRACEVIEW_KERNELS"
BLOBS = ("ptx", "cubin")
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
