"""Pages of unified memory that move before the first or after the last work of their GPU."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.operations.operations import migrations, operations
from traceview.intervals import Intervals
from traceview.tables import Mask
from traceview.trace import Trace, fact_without_ranges


@fact_without_ranges
def outer_migrations(trace: Trace) -> Mask:
    """True for the rows of copies that migrate pages while their GPU has no work at all.

    Programs fill their data on the CPU before the GPU's work and read results there after it.
    """
    copies, ops = trace.recorded("copies"), operations(trace)
    devices = len(trace.devices)
    first = np.full(devices, np.iinfo(np.int64).max)
    last = np.full(devices, np.iinfo(np.int64).min)
    np.minimum.at(first, ops.device, ops.start_ns)
    np.maximum.at(last, ops.device, ops.end_ns)
    outside = (copies["end_ns"] <= first[copies["device"]]) | (
        copies["start_ns"] >= last[copies["device"]]
    )
    result: Mask = migrations(trace) & outside & (first < last)[copies["device"]]
    return result


@fact_without_ranges
def outer_migration_time(trace: Trace) -> dict[int, Intervals]:
    """Time of the outer migrations of each device that has some, by row in devices."""
    copies, outer = trace.recorded("copies"), outer_migrations(trace)
    times = {}
    for device in groups.different(copies["device"][outer]).tolist():
        own = outer & (copies["device"] == device)
        times[device] = intervals.union(copies["start_ns"][own], copies["end_ns"][own])
    return times
