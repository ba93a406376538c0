"""The time that findings are about.

With it a report detects findings about the same idle time, and computes how much is in steps.
"""

from __future__ import annotations

import numpy as np

from traceview import intervals
from traceview.facts.idle.gaps import Gaps
from traceview.facts.operations.operations import kernel_operations, operations
from traceview.facts.steps.warm_up import steady_operations
from traceview.findings import Finding, LostTime
from traceview.tables import Array, Mask
from traceview.trace import Trace


def lost_in(every: Gaps, chosen: Mask) -> LostTime | None:
    """The chosen gaps of the device that idled longest in them; None without any."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return None
    device = int(np.argmax(np.bincount(every.device[rows], every.idle_ns[rows])))
    rows = rows[every.device[rows] == device]
    return LostTime(device, intervals.union(every.start_ns[rows], every.end_ns[rows]))


def work_time(trace: Trace, rows: Array) -> LostTime | None:
    """The steady time of operations on the device where they take longest; None without any."""
    ops = operations(trace)
    rows = rows[steady_operations(trace)[rows]]
    if not len(rows):
        return None
    device = int(np.argmax(np.bincount(ops.device[rows], ops.duration_ns[rows])))
    rows = rows[ops.device[rows] == device]
    return LostTime(device, intervals.union(ops.start_ns[rows], ops.end_ns[rows]))


def time_of(trace: Trace, finding: Finding) -> LostTime | None:
    """The time that a finding is about: its own, else that of the kernel that it names."""
    if finding.lost or finding.work or finding.subject.kind != "kernel":
        return finding.lost or finding.work
    kernels = trace.recorded("kernels")
    chosen = kernels.texts("name").isin([finding.subject.name])
    grid = str(finding.evidence.row.get("grid") or "").split("x")
    if len(grid) == 3 and not finding.evidence.values.get("other_grids"):
        for axis, side in zip("xyz", grid, strict=True):
            chosen &= kernels[f"grid_{axis}"] == int(side)
    return work_time(trace, kernel_operations(trace)[chosen])
