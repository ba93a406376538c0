"""Counts over the steps of a run: calls of the CPU, and work of the GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups
from traceview.comparison.extraction.window import RunWindow, run_window
from traceview.comparison.extraction.work import WorkKind, in_steps, window_work
from traceview.facts.memory.allocation_calls import freeing_calls
from traceview.facts.operations.cuda_api import CallKind, call_kinds
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.steps.steps import step_of_calls, steps
from traceview.tables import Integers
from traceview.trace import Trace, fact


@fact
def counts_of(trace: Trace) -> Mapping[str, int]:
    """Totals over the window; see RunFigures for the names."""
    return {**_work_counts(trace), **_call_counts(trace)}


def _work_counts(trace: Trace) -> dict[str, int]:
    work, ops = window_work(trace), operations(trace)
    kind = work.kind[work.counted]
    rows = work.rows[work.counted]
    copied = ops.row[rows[ops.kind[rows] == Kind.COPY]]
    return {
        "kernels": int((kind == WorkKind.KERNEL).sum()),
        "graphs": int((kind == WorkKind.GRAPH).sum()),
        "collectives": int((kind == WorkKind.COMMUNICATION).sum()),
        "copies": int((kind == WorkKind.COPY).sum()),
        "memsets": int((kind == WorkKind.MEMSET).sum()),
        "copied_bytes": int(trace.recorded("copies")["bytes"][copied].sum()),
    }


def _call_counts(trace: Trace) -> dict[str, int]:
    """Counts of the calls that the processes of the GPU made in the steps."""
    window = run_window(trace)
    rows = _calls(trace, window)
    kind, freed = call_kinds(trace)[rows], freeing_calls(trace)[rows]
    allocates = kind == CallKind.ALLOCATE
    return {
        "launches": int((kind == CallKind.LAUNCH).sum()),
        "synchronizations": int((kind == CallKind.SYNCHRONIZE).sum()),
        "blocking_copies": int((kind == CallKind.COPY).sum()),
        "allocations": int((allocates & ~freed).sum()),
        "releases": int((allocates & freed).sum()),
    }


_COUNTED = (CallKind.LAUNCH, CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.ALLOCATE)


def _calls(trace: Trace, window: RunWindow) -> Integers:
    """Rows of api_calls made in the steps of the window, or between them."""
    calls, ops = trace.recorded("api_calls"), operations(trace)
    chosen = np.isin(call_kinds(trace), _COUNTED)
    own = groups.different(ops.process[ops.device == window.device])
    rows = np.flatnonzero(chosen & np.isin(calls["process"], own))
    start = calls["start_ns"][rows]
    if len(window.steps):
        all_steps = steps(trace)
        first = int(all_steps.cpu_start_ns[window.steps].min())
        last = int(all_steps.cpu_end_ns[window.steps].max())
    elif len(window.covered.start):
        first, last = int(window.covered.start[0]), int(window.covered.end[-1])
    else:
        first = last = 0
    between = (start >= first) & (start < last)
    return rows[in_steps(window, step_of_calls(trace, rows), between)]
