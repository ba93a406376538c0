"""Idle time in which streams waited for host functions, or the driver compiled code."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.operations import operations
from traceview.tables import Mask, Table
from traceview.trace import Trace


def in_host_functions(trace: Trace, own: Mask) -> tuple[int, int]:
    """Idle time (ns) of some gaps in host functions of their process, and how many those are.

    A host function may hold another stream than its own by an event, so streams are not compared.
    """
    return _during(trace.recorded("host_functions"), trace, own)


def in_jit(trace: Trace, own: Mask) -> tuple[int, int]:
    """Idle time (ns) of some gaps in which their process compiled PTX, and the compilations."""
    jit = trace.recorded("jit_compilations")
    return _during(jit.take(jit.texts("operation").isin(["compile"])), trace, own)


def _during(work: Table, trace: Trace, own: Mask) -> tuple[int, int]:
    every, total_ns, number = gaps(trace), 0, 0
    process = operations(trace).process[every.after]
    for each in groups.different(work["process"]).tolist():
        rows, of_process = np.flatnonzero(own & (process == each)), work["process"] == each
        start, end = work["start_ns"][of_process], work["end_ns"][of_process]
        covered = intervals.union(start, end)
        total_ns += int(intervals.overlap(covered, every.start_ns[rows], every.end_ns[rows]).sum())
        idle = intervals.union(every.start_ns[rows], every.end_ns[rows])
        number += int((intervals.overlap(idle, start, end) > 0).sum())
    return total_ns, number
