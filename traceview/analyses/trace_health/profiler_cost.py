"""Profiler overhead that delayed recorded GPU work.

Only overhead in processes with GPU work counts, between their first and last GPU work and after
warm-up. A compiler that starts beside them delays nothing, nor does the profiler's own start-up
or what it writes out at the end.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.causes import profiler_overheads
from traceview.facts.operations.operations import operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace, fact


@record
class Cost:
    """Time `lost_ns` that the profiler took of `span_ns`, and the purpose of most of it.

    `after_warm_up` is False where no warm-up is known, so that all GPU work counts.
    """

    lost_ns: int
    span_ns: int
    mostly: str
    after_warm_up: bool


@fact
def profiler_cost(trace: Trace) -> Cost | None:
    """The overhead on all processes together; None without any."""
    overheads = trace.recorded("overheads")
    own = overheads.take(profiler_overheads(trace))
    first, last = _working(trace)
    process = np.where(own.is_null("process"), len(trace.processes), own["process"])
    start, end = (
        np.clip(own[name], first[process], last[process]) for name in ("start_ns", "end_ns")
    )
    lost = intervals.union(start, end).total()
    if not lost:
        return None
    names = own.texts("name")
    by_purpose = groups.group(names.codes)
    mostly = int(by_purpose.first[np.argmax(groups.sums(by_purpose, end - start))])
    span = int(last[-1] - first[-1])
    return Cost(lost, span, str(names[mostly]), warm_up_end_ns(trace) > np.iinfo(np.int64).min)


def _working(trace: Trace) -> tuple[Integers, Integers]:
    """Start and end of each process's GPU work after warm-up; the last row is for all processes."""
    ops, processes = operations(trace), len(trace.processes)
    limits = np.iinfo(np.int64)
    first, last = np.full(processes + 1, limits.max), np.zeros(processes + 1, np.int64)
    np.minimum.at(first, ops.process, ops.start_ns)
    np.maximum.at(last, ops.process, ops.end_ns)
    first[-1], last[-1] = first.min(), last.max()
    last = np.maximum(last, warm_up_end_ns(trace))
    return np.clip(first, warm_up_end_ns(trace), last), last
