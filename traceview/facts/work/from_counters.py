"""Bytes and FLOP counted by Nsight Compute, assigned to the kernels of the trace.

The counts come from another run of the program. Launches match by base name, grid and block. Where
both runs have equally many of these, in one process each, they match in order; else every launch
gets the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.work.estimate import KINDS, WorkEstimate
from traceview.groups import Groups
from traceview.tables import Integers, Table
from traceview.trace import Trace
from traceview.trace.ncu.counters import launches_of

_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def from_counters(trace: Trace) -> WorkEstimate | None:
    """The work of each kernel by the table kernel_counters; None without that table."""
    if "kernel_counters" not in trace.tables:
        return None
    kernels, counters = trace.recorded("kernels"), trace.table("kernel_counters")
    estimate = WorkEstimate.unknown(len(kernels))
    alike = groups.group(kernels.texts("short_name").codes, *(kernels[axis] for axis in _AXES))
    launches = launches_of(counters)
    order = np.argsort(alike.ids, kind="stable")
    ends = np.cumsum(np.bincount(alike.ids, minlength=alike.size))
    for number, last in enumerate(ends.tolist()):
        first = int(ends[number - 1]) if number else 0
        rows = order[first:last]
        counted = launches.get(_key(kernels, alike, number))
        if counted:
            _assign(estimate, rows, np.array(counted), counters, kernels)
    return estimate


def _key(kernels: Table, found: Groups, number: int) -> tuple[str | int | None, ...]:
    row = int(found.first[number])
    return (kernels.texts("short_name")[row], *(int(kernels[axis][row]) for axis in _AXES))


def _assign(
    estimate: WorkEstimate, rows: Integers, counted: Integers, counters: Table, kernels: Table
) -> None:
    """Fill in these rows of kernels from rows of counters."""
    processes = (
        groups.different(kernels["process"][rows]),
        groups.different(counters["process_id"][counted]),
    )
    paired = len(rows) == len(counted) and all(len(each) == 1 for each in processes)
    for into, name in ((estimate.bytes, "bytes"), (estimate.flop, "flop")):
        values = counters[name][counted]
        into[rows] = values if paired else _mean(values)
    kinds = counters.texts("flop_kind")
    numbers = [
        KINDS.index(kind) if (kind := kinds[row]) in KINDS else -1 for row in counted.tolist()
    ]
    estimate.kind[rows] = numbers if paired else max(numbers, key=numbers.count)


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
