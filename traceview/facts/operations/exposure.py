"""Time of copies and communication that no compute of the same GPU hides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.operations.kernel_classes import communication_kernels
from traceview.facts.operations.operations import Kind, operations, operations_by_device
from traceview.groups import Groups
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, picked
from traceview.trace import Trace, fact_without_ranges


@fact_without_ranges
def compute_time(trace: Trace) -> dict[int, Intervals]:
    """Union of the kernels of each device, by row in devices, without communication.

    A graph recorded whole is taken to compute all the time. The selection does not matter: work
    outside it hides as well.
    """
    ops = operations(trace)
    computes = (ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH)
    kernels = np.flatnonzero(ops.kind == Kind.KERNEL)
    computes[kernels] = ~picked(communication_kernels(trace), ops.row[kernels])
    result = {}
    for device, rows in operations_by_device(trace).items():
        rows = rows[picked(computes, rows)]
        result[device] = intervals.union(picked(ops.start_ns, rows), picked(ops.end_ns, rows))
    return result


class Exposure(NamedTuple):
    """Time covered by each group of operations, in ns: the sum of its unions on each device."""

    hidden_ns: Integers
    """Time during which the same device computes."""
    exposed_ns: Integers
    """Time during which it does not."""


def exposure(trace: Trace, device: Array, start: Integers, end: Integers, by: Groups) -> Exposure:
    """Hidden and exposed time of intervals, summed by the groups `by`.

    `device`, `start` and `end` have one entry per interval; `device` has rows of devices. The times
    of several devices in one group add up.
    """
    hidden, exposed = (np.zeros(by.size, np.int64) for _ in range(2))
    pairs = groups.group(by.ids, device)
    order = groups.order_of(pairs.ids)
    edges = np.searchsorted(pairs.ids[order], np.arange(pairs.size + 1))
    for pair, row in enumerate(pairs.first.tolist()):
        rows = order[edges[pair] : edges[pair + 1]]
        covered = intervals.union(start[rows], end[rows])
        compute = compute_time(trace).get(int(device[row]), intervals.EMPTY)
        under = int(intervals.overlap(compute, covered.start, covered.end).sum())
        hidden[by.ids[row]] += under
        exposed[by.ids[row]] += covered.total() - under
    return Exposure(hidden, exposed)
