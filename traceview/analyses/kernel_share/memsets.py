"""Storms of memsets: nearly every kernel of the program waits for one before it.

Libraries clear their own workspaces, which nobody can change: only memsets that come right before
a kernel of the program count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.analyses.lost_time import work_time
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_operations_ns, gain_of_operations_ns
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import (
    KernelClass,
    KernelOwner,
    kernel_classes,
    kernel_owners,
)
from traceview.facts.operations.operations import Kind, operations, operations_by_stream
from traceview.facts.steps.warm_up import steady_operations
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.gpus import gpu_subject
from traceview.tables import RowNumbers
from traceview.trace import Trace

_MANY, _LEAST_FRACTION = 1_000, 0.25


def _storms(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most memsets before kernels of the program."""
    ops = operations(trace)
    rows, after = _before_own_kernels(trace)
    if len(rows) < _MANY:
        return
    device = int(np.argmax(np.bincount(ops.device[rows])))
    on_device = ops.device[rows] == device
    rows, after = rows[on_device], after[on_device]
    steady = steady_operations(trace) & (ops.device == device)
    every = int(steady.sum())
    if len(rows) < max(_MANY, _LEAST_FRACTION * every):
        return
    kind = KernelClass(int(np.argmax(np.bincount(kernel_classes(trace)[ops.row[after]]))))
    longest = int(np.argmax(ops.duration_ns[rows]))
    saved_ns = claimable_operations_ns(trace, device, rows)
    values = {
        "memsets": len(rows),
        "operations_pct": 100.0 * len(rows) / every,
        "total_ns": int(ops.duration_ns[rows].sum()),
        "saved_ns": saved_ns,
    }
    yield TimeClaim(
        gpu_subject(trace, device),
        values,
        "classes",
        {**gpu_cells(trace, device), "class": kind.label},
        saved_ns,
        gain_of_operations_ns(trace, rows),
        steady_spans_ns(trace).get(device, 0),
        (int(ops.start_ns[rows[longest]]), int(ops.end_ns[after[longest]])),
        work_time(trace, rows),
    )


MEMSETS = FindingRule(
    _storms,
    "{memsets} kernels of the program each follow a memset ({operations_pct} of all operations). "
    "These memsets take {total_ns}.",
    "Clear the values in the kernel before, or many of them with one memset: each is a launch of "
    "its own.",
)


def _before_own_kernels(trace: Trace) -> tuple[RowNumbers, RowNumbers]:
    """Steady memsets followed on their stream by a kernel of the program, and these kernels."""
    ops, order = operations(trace), operations_by_stream(trace)
    place = np.flatnonzero(ops.kind[order[:-1]] == Kind.SET)
    now, then = order[place], order[place + 1]
    follows = (ops.stream[now] == ops.stream[then]) & (ops.kind[then] == Kind.KERNEL)
    now, then = now[follows], then[follows]
    own = kernel_owners(trace)[ops.row[then]] == KernelOwner.PROGRAM
    own &= steady_operations(trace)[now]
    return now[own], then[own]
