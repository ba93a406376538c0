"""TRACEVIEW_ tables of Python stacks, as `traceview record` wrote them into the trace."""

from __future__ import annotations

import numpy as np

from traceview.tables import Array, Texts
from traceview.trace.nsys.names import UNNAMED, filled
from traceview.trace.nsys.rows import INT32, ExportTable, Staged
from traceview.trace.nsys.tables import Reader
from traceview.trace.sqlite.file import Database

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
            "state": Texts(np.full(count, -1, np.int32), np.empty(0, object)),
        },
        {
            "stack": number.astype(np.int32),
            "depth": (np.arange(len(number)) - first[number]).astype(np.int32),
            "file": filled(frames.texts("file"), UNNAMED).take(order),
            "line": np.where((line > 0) & (line < INT32.max), line, INT32.min).astype(np.int32),
            "function": filled(frames.texts("function"), UNNAMED).take(order),
            "source": Texts(np.full(len(number), -1, np.int32), np.empty(0, object)),
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
