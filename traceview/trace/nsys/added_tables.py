"""The tables that `traceview record` adds to a trace: code of kernels, source lines, samples."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from traceview.tables import Array, Column, Texts, null_of, object_array
from traceview.trace.nsys.names import UNNAMED, filled
from traceview.trace.nsys.rows import ExportTable
from traceview.trace.nsys.tables import Reader
from traceview.trace.schema.program import KERNEL_CODE
from traceview.trace.sqlite.file import Database
from traceview.trace.staged import INT32, Staged, absent_texts

# TRACEVIEW_KERNELS: the kernel code that `traceview record` stored in the trace.
#
# Code stays compressed until it is needed. A trace is untrusted input: the decompressed size is
# bounded, and a field of the wrong type counts as absent.

KERNELS_TABLE = "TRACEVIEW_KERNELS"
BLOBS = ("ptx", "cubin")
# Far beyond any real kernel.
MOST_BYTES = 64 << 20
_INT64 = np.iinfo(np.int64)


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
        column.name: _READ[column.dtype](column, list(values))
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


def _texts(column: Column, cells: Sequence[object]) -> Texts:
    absent = None if column.nullable else ""
    return Texts.of([cell if isinstance(cell, str) else absent for cell in cells])


def _integers(column: Column, cells: Sequence[object]) -> Array:
    dtype = np.dtype(column.dtype)
    most = INT32.max if dtype.itemsize == 4 else _INT64.max
    null = null_of(dtype)
    sound = [c if isinstance(c, int) and 0 <= c <= most else null for c in cells]
    return np.array(sound, dtype)


def _blobs(_: Column, cells: Sequence[object]) -> Array:
    return object_array([cell if isinstance(cell, bytes) else None for cell in cells])


_READ: dict[str, Callable[[Column, Sequence[object]], Array | Texts]] = {
    "text": _texts,
    "int32": _integers,
    "int64": _integers,
    "bytes": _blobs,
}


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
    file, line = frames["file"], frames["line"]
    assert isinstance(file, Texts)
    assert not isinstance(line, Texts)
    if not rows:
        return frames
    known = {(name, number): text for name, number, text in rows if isinstance(text, str)}
    return {**frames, "source": _sources(file, line, known)}


def _sources(file: Texts, line: Array, known: dict[tuple[object, object], str]) -> Texts:
    """The source text of each (file, line), absent where it was not stored."""
    pairs = np.stack([file.codes.astype(np.int64), line.astype(np.int64)])
    distinct, code = np.unique(pairs, axis=1, return_inverse=True)
    texts = [known.get((str(file.values[row]), number)) for row, number in distinct.T.tolist()]
    return Texts(code.reshape(-1).astype(np.int32), np.array([*texts, None], object)[:-1]).map(
        texts
    )
