"""Time for which each kernel shared its GPU with another kernel."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.operations.operations import Kind, operations, operations_by_device
from traceview.tables import Integers, picked
from traceview.trace import Trace, fact_without_ranges


@fact_without_ranges
def shared_ns(trace: Trace) -> Integers:
    """Time of each row of kernels during which another kernel, or a graph, ran on its GPU."""
    ops, kernels = operations(trace), trace.recorded("kernels")
    # A graph recorded whole is taken to run kernels all the time. Copies take no SM.
    computes = (ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH)
    result = np.zeros(len(kernels), np.int64)
    for device, rows in groups.rows_of(kernels["device"]).items():
        on_device = operations_by_device(trace)[device]
        on_device = on_device[picked(computes, on_device)]
        start, end = picked(ops.start_ns, on_device), picked(ops.end_ns, on_device)
        busy_twice = intervals.covered_twice(start, end)
        start, end = picked(kernels["start_ns"], rows), picked(kernels["end_ns"], rows)
        result[rows] = intervals.overlap(busy_twice, start, end)
    return result
