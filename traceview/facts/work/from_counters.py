"""Bytes and FLOP counted by Nsight Compute, assigned to the kernels of the trace.

The counts come from another run of the program. Launches match by base name, grid and block. Where
both runs have equally many of these, in one process each, they match in order; else every launch
gets the mean.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.work.estimate import KINDS, WorkEstimate
from traceview.tables import Array, Integers, Table
from traceview.trace import Trace
from traceview.trace.ncu.counters import launches_of

_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def from_counters(trace: Trace) -> WorkEstimate | None:
    """The work of each kernel by the table kernel_counters; None without that table."""
    if "kernel_counters" not in trace.tables:
        return None
    kernels, counters = trace.recorded("kernels"), trace.table("kernel_counters")
    estimate = WorkEstimate.unknown(len(kernels))
    names, axes = kernels.texts("short_name"), [kernels[axis] for axis in _AXES]
    launches = launches_of(counters)
    for rows in groups.rows_of(groups.group(names.codes, *axes).ids).values():
        counted = launches.get((names[rows[0]], *(int(axis[rows[0]]) for axis in axes)))
        if counted:
            _assign(estimate, rows, np.array(counted), counters, kernels)
    return estimate


def _assign(
    estimate: WorkEstimate, rows: Array, counted: Integers, counters: Table, kernels: Table
) -> None:
    """Fill in these rows of kernels from rows of counters."""
    processes = (
        groups.different(kernels["process"][rows]),
        groups.different(counters["process_id"][counted]),
    )
    paired = len(rows) == len(counted) and all(len(process) == 1 for process in processes)
    for into, name in ((estimate.bytes, "bytes"), (estimate.flop, "flop")):
        values = counters[name][counted]
        present = values[~np.isnan(values)]
        mean = float(present.mean()) if len(present) else np.nan
        into[rows] = values if paired else mean
    kinds = counters.texts("flop_kind")
    numbers = [
        KINDS.index(kind) if (kind := kinds[row]) in KINDS else -1 for row in counted.tolist()
    ]
    estimate.kind[rows] = numbers if paired else max(numbers, key=numbers.count)
