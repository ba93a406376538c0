"""Stacks of native code: of sampled threads, and of longer OS runtime calls.

nsys samples a thread only while it runs, and unwinds only one in several samples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups
from traceview.tables import NULL, Integers, Mask, Texts
from traceview.trace.nsys.rows import ExportTable, Rows, Staged
from traceview.trace.nsys.tables import Reader
from traceview.trace.sqlite.row_reader import Numbers

SAMPLES = ExportTable("COMPOSITE_EVENTS", ("id", "start"), ("globalTid",))
_FRAMES = ("id", "symbol", "stackDepth")
SAMPLED_FRAMES = ExportTable("SAMPLING_CALLCHAINS", _FRAMES, ("module", "unresolved"))
OS_FRAMES = ExportTable("OSRT_CALLCHAINS", _FRAMES, ("module", "unresolved"))
# Modules of entries that mark where a stack could not be unwound further.
_NO_MODULES = ("[Broken backtraces]", "[Unknown]", "[Max depth]")


def native_samples(reader: Reader) -> Staged | None:
    """Samples of the threads that occur in other tables, in order of time."""
    rows = reader.export.rows(SAMPLES)
    if rows is None:
        return None
    rows = rows.where(reader.owners.has_threads(rows))
    thread, process = reader.owners.threads(rows)
    time = rows.nullable("start")
    order = np.argsort(time, kind="stable")
    return {
        "time_ns": time[order],
        "process": process[order],
        "thread": thread[order],
        "stack": rows.integer("id").clip(0)[order],
    }


def os_stacks(rows: Rows) -> Integers:
    """The stack number in native_frames of each row of OSRT_API; NULL for most calls."""
    chain = rows.integer("callchainId")
    return np.where(chain > 0, -chain, NULL)


def native_frames(reader: Reader, found: Mapping[str, Staged | None]) -> Staged | None:
    """The frames of the stacks of native_samples and os_calls, both in `found`, innermost first.

    A sample with only its innermost frame counts as one without a stack, unless all samples are
    so: the function that called a library would be missing.
    """
    sampled = reader.export.rows(SAMPLED_FRAMES) if found["native_samples"] else None
    called = reader.export.rows(OS_FRAMES) if found["os_calls"] else None
    parts = [(rows, sign) for rows, sign in ((called, -1), (sampled, 1)) if rows is not None]
    if not parts:
        return None
    used = [_column(staged, "stack") for staged in found.values() if staged is not None]
    stack = np.concatenate([sign * rows.integer("id") for rows, sign in parts])
    kept = groups.isin(stack, np.concatenate(used)) & ((stack < 0) | _unwound(stack))
    return _frames(reader, [rows for rows, _ in parts], stack, kept)


def _unwound(stack: Integers) -> Mask:
    """True for the frames of samples with several frames; for all frames, if no sample has."""
    _, number, counts = np.unique(stack, return_inverse=True, return_counts=True)
    several: Mask = counts[number] > 1
    return several if several[stack >= 0].any() else np.ones(len(stack), bool)


def _frames(reader: Reader, parts: list[Rows], stack: Integers, kept: Mask) -> Staged:
    def numbers(name: str) -> Numbers:
        return Numbers(np.concatenate([rows.integer(name, NULL) for rows in parts])[kept], None)

    def texts(name: str) -> Texts:
        ids = numbers(name)
        return reader.names.texts(Numbers(ids.values, ids.values == NULL))

    module, symbol = texts("module"), texts("symbol")
    resolved = numbers("unresolved").values != 1
    real = ~module.isin(_NO_MODULES)
    stack, depth = stack[kept], numbers("stackDepth").values
    order = np.lexsort((depth, stack))
    order = order[real[order]]
    named = np.where(resolved, symbol.codes, np.int32(-1))
    return {
        "stack": stack[order],
        "depth": depth[order].clip(0, 1 << 30).astype(np.int32),
        "function": Texts(named, symbol.values).take(order),
        "module": module.take(order),
    }


def _column(staged: Staged, name: str) -> Integers:
    values = staged[name]
    assert not isinstance(values, Texts)
    return values
