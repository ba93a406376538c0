"""Launches without GPU work, operations without a launch, and whether a window cut them off."""

from __future__ import annotations

import numpy as np

from traceview.facts.operations.cuda_api import CallKind, call_kinds, captured_calls
from traceview.facts.operations.operations import operations
from traceview.records import record
from traceview.tables import Mask
from traceview.trace import Trace, fact, fact_without_ranges
from traceview.trace.schema import TABLES

LEAST_NS = 1_000_000_000
"""The edges of a shorter recording are no evidence."""
EDGE_NS = 100_000_000
"""A program that uses a GPU so soon after the first event had started before: creating a CUDA
context under the profiler takes longer."""
NEVER, ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@record
class CutWindow:
    """First and last time, in ns, of a recording that began and ended while the program ran."""

    first_ns: int
    last_ns: int


@record
class Unpaired:
    """Launch calls without GPU work (rows of api_calls) and operations without a launch call.

    `late` launches follow the last launch of their process whose work was recorded; `early`
    operations start before the first operation of their process whose launch was recorded. A window
    cuts both off, as far as the CPU runs ahead of the GPU.
    """

    launches: Mask
    late: Mask
    operations: Mask
    early: Mask


@fact_without_ranges
def unpaired(trace: Trace) -> Unpaired:
    ops, calls = operations(trace), trace.recorded("api_calls")
    processes = len(trace.processes) + 1
    has_work = np.zeros(len(calls), bool)
    has_work[ops.call[ops.launched]] = True
    launches = (call_kinds(trace) == CallKind.LAUNCH) & ~has_work & ~captured_calls(trace)
    last = np.full(processes, ALWAYS)
    working = np.flatnonzero(has_work)
    last[calls["process"][working]] = NEVER
    np.maximum.at(last, calls["process"][working], calls["start_ns"][working])
    first = np.full(processes, ALWAYS)
    np.minimum.at(first, ops.process[ops.launched], ops.start_ns[ops.launched])
    first[first == ALWAYS] = NEVER
    return Unpaired(
        launches=launches,
        late=launches & (calls["start_ns"] > last[calls["process"]]),
        operations=~ops.launched,
        early=~ops.launched & (ops.start_ns < first[ops.process]),
    )


@fact
def cut_window(trace: Trace) -> CutWindow | None:
    """The window; None where the program seems to begin or end in the recording.

    A recording is such a window if GPU work goes on from its first moment to its last, or if it
    cuts launches off from their work at both ends.
    """
    ops = operations(trace)
    edges = [
        (int(table["start_ns"].min()), int(table["start_ns"].max()))
        for name, table in trace.tables.items()
        if len(table) and "start_ns" in {column.name for column in TABLES[name].columns}
    ]
    if not len(ops) or not edges:
        return None
    first, last = min(begin for begin, _ in edges), max(end for _, end in edges)
    last = max(last, int(ops.end_ns.max()))
    at_once = int(ops.start_ns[0]) - first < EDGE_NS
    to_the_end = last - int(ops.end_ns.max()) < EDGE_NS
    through = at_once and to_the_end and last - first > LEAST_NS
    cut_off = bool(unpaired(trace).late.any() and unpaired(trace).early.any())
    return CutWindow(first, last) if through or cut_off else None
