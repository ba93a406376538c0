"""Bytes and FLOP that Nsight Compute counted, given to the kernels of the trace.

The counts come from another run of the program. A launch of it is that of a kernel of the trace if
base name, grid and block agree. Where both runs have equally many of these, and one process each,
the k-th is the k-th; else every one gets the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.work.estimate import KINDS, Part
from traceview.groups import Groups
from traceview.tables import Integers, Table
from traceview.trace import Trace
from traceview.trace.ncu.counters_csv import launches_of

_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def counted(trace: Trace) -> Part | None:
    """What the table kernel_counters says of each kernel; None without that table."""
    if "kernel_counters" not in trace.tables:
        return None
    kernels, counters = trace.recorded("kernels"), trace.table("kernel_counters")
    part = Part.unknown(len(kernels))
    found = groups.group(kernels.texts("short_name").codes, *(kernels[axis] for axis in _AXES))
    launches = launches_of(counters)
    order = np.argsort(found.ids, kind="stable")
    ends = np.cumsum(np.bincount(found.ids, minlength=found.size))
    for number, last in enumerate(ends.tolist()):
        rows = order[_first(ends, number) : last]
        mine = launches.get(_key(kernels, found, number))
        if mine:
            _give(part, rows, np.array(mine), counters, kernels)
    return part


def _first(ends: Integers, number: int) -> int:
    return int(ends[number - 1]) if number else 0


def _key(kernels: Table, found: Groups, number: int) -> tuple[str | int | None, ...]:
    row = int(found.first[number])
    return (kernels.texts("short_name")[row], *(int(kernels[axis][row]) for axis in _AXES))


def _give(part: Part, rows: Integers, mine: Integers, counters: Table, kernels: Table) -> None:
    processes = (
        groups.different(kernels["process"][rows]),
        groups.different(counters["process_id"][mine]),
    )
    paired = len(rows) == len(mine) and all(len(each) == 1 for each in processes)
    for into, name in ((part.bytes, "bytes"), (part.flop, "flop")):
        values = counters[name][mine]
        into[rows] = values if paired else _mean(values)
    kinds = counters.texts("flop_kind")
    numbers = [KINDS.index(kind) if (kind := kinds[row]) in KINDS else -1 for row in mine.tolist()]
    part.kind[rows] = numbers if paired else max(numbers, key=numbers.count)


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
