"""Tensors updated one by one, where one operation could update them all.

An average of weights, scaled gradients or a hand-written optimizer is a loop over parameters. It
launches the same few elementwise kernels for each, at as many sizes as the parameters have. One
that only casts or copies them updates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_wording import gpu_subject
from traceview.analyses.kernel_share.fusion import matching_kernels, steady_in_order
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.steps.steps import step_of_operations, steps
from traceview.findings import Evidence, Finding, LostTime, severity_of, share_pct
from traceview.tables import Array, Integers, RowNumbers, picked
from traceview.trace import Trace
from traceview.units import Value

_OF_ONE_TENSOR = re.compile(r"\bat::native::\w*elementwise_kernel<(?!.*\bFillFunctor\b)", re.DOTALL)
_MANY_TENSORS = 20
_MOST_KINDS, _LEAST_SIZES = 3, 3


def per_tensor_updates(trace: Trace) -> Iterator[Finding]:
    """A finding on the GPU with most time in loops over tensors that run in half of the steps."""
    rows, run = _updates(trace)
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    findings = [_finding(trace, device, rows[own], run[own]) for device, own in by_device.items()]
    worst = max(filter(None, findings), key=lambda each: each.time_at_stake_ns, default=None)
    if worst:
        yield worst


def _finding(trace: Trace, device: int, rows: RowNumbers, run: Integers) -> Finding | None:
    kernels, span_ns = trace.recorded("kernels"), steady_spans_ns(trace).get(device, 0)
    in_steps = groups.different(step_of_operations(trace)[kernel_operations(trace)[rows]])
    by_run = groups.group(run)
    if by_run.size < 2 or 2 * np.count_nonzero(in_steps >= 0) < len(steps(trace)) - 1:
        return None
    first, last = by_run.first, np.append(by_run.first[1:], len(run)) - 1
    time = intervals.union(kernels["start_ns"][rows[first]], kernels["end_ns"][rows[last]])
    severity = severity_of(time.total(), span_ns)
    if severity is None:
        return None
    values: dict[str, Value] = {
        "updates": len(rows),
        "runs": by_run.size,
        "per_run": len(rows) // by_run.size,
        "total_ns": time.total(),
    }
    kind = KernelClass(int(np.argmax(np.bincount(kernel_classes(trace)[rows]))))
    return Finding(
        severity,
        "Tensors are updated one by one: {updates} elementwise kernels in {runs:loop}, {per_run} "
        "in a row, take {total_ns} with the gaps between them.",
        "Update all tensors together: torch._foreach_lerp_ or AveragedModel with "
        "get_ema_multi_avg_fn for an average of weights, torch._foreach_mul_ and the like for "
        "gradients, foreach=True or fused=True for optimizers.",
        time.total(),
        gpu_subject(trace, device),
        Evidence(values, "classes", {**gpu_cells(trace, device), "class": kind.label}),
        share_pct(time.total(), span_ns),
        work=LostTime(device, time),
    )


def _updates(trace: Trace) -> tuple[RowNumbers, Integers]:
    """Kernels of loops over tensors, in order of stream and start, and the loop of each."""
    kernels = trace.recorded("kernels")
    rows, opens = steady_in_order(trace)
    single = matching_kernels(trace, _OF_ONE_TENSOR)[rows]
    stretch = np.cumsum(opens | groups.opens(single)) - 1
    at = np.flatnonzero(single)
    kind = groups.group(picked(stretch, at), picked(kernels.texts("name").codes, picked(rows, at)))
    often = np.zeros(len(rows), bool)
    often[at] = np.bincount(kind.ids)[kind.ids] >= _MANY_TENSORS
    run = np.cumsum(opens | groups.opens(often)) - 1
    rows, run = rows[often], run[often]
    if not len(rows):
        return rows, run
    kinds = _distinct(run, kernels.texts("name").codes[rows])
    sizes = _distinct(run, kernels["grid_x"][rows])
    long = np.bincount(run)[run] >= _MANY_TENSORS
    moves = kernel_classes(trace)[rows] == KernelClass.CAST_COPY
    computes = np.bincount(run, ~moves)[run] > 0
    loops = long & computes & (kinds[run] <= _MOST_KINDS) & (sizes[run] >= _LEAST_SIZES)
    return rows[loops], run[loops]


def _distinct(run: Integers, values: Array) -> Integers:
    """The number of distinct values in each run."""
    pairs = groups.group(run, values)
    return np.bincount(run[pairs.first], minlength=int(run.max()) + 1)
