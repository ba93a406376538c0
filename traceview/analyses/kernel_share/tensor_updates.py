"""Tensors updated one by one, where one operation could update them all.

An average of weights, scaled gradients or a hand-written optimizer is a loop over parameters. It
launches the same few elementwise kernels for each, at as many sizes as the parameters have. One
that only casts or copies them updates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.kernel_share.fusion import steady_in_order
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.steps.steps import step_of_operations, steps
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import named, whole_claim
from traceview.tables import Integers, RowNumbers, picked
from traceview.trace import Trace

_OF_ONE_TENSOR = r"\bat::native::\w*elementwise_kernel<(?!.*\bFillFunctor\b)"
_MANY_TENSORS = 20
_MOST_KINDS, _LEAST_SIZES = 3, 3


def _loops(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most time in loops over tensors that run in half of the steps."""
    if not named(trace, _OF_ONE_TENSOR).any():
        return
    rows, run = _updates(trace)
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    claims = [_of_device(trace, device, rows[own], run[own]) for device, own in by_device.items()]
    worst = max(filter(None, claims), key=lambda each: each.saved_ns, default=None)
    if worst:
        yield worst


def _of_device(trace: Trace, device: int, rows: RowNumbers, run: Integers) -> TimeClaim | None:
    kernels, by_run = trace.recorded("kernels"), groups.group(run)
    in_steps = groups.different(step_of_operations(trace)[kernel_operations(trace)[rows]])
    if by_run.size < 2 or 2 * np.count_nonzero(in_steps >= 0) < len(steps(trace)) - 1:
        return None
    first, last = by_run.first, np.append(by_run.first[1:], len(run)) - 1
    time = intervals.union(kernels["start_ns"][rows[first]], kernels["end_ns"][rows[last]])
    values = {
        "updates": len(rows),
        "runs": by_run.size,
        "per_run": len(rows) // by_run.size,
        "total_ns": time.total(),
    }
    return whole_claim(trace, device, rows, values, time)


TENSOR_UPDATES = FindingRule(
    _loops,
    "Tensors are updated one by one: {updates} elementwise kernels in {runs:loop}, {per_run} in a "
    "row, take {total_ns} with the gaps between them.",
    "Update all tensors together: torch._foreach_lerp_ or AveragedModel with "
    "get_ema_multi_avg_fn for an average of weights, torch._foreach_mul_ and the like for "
    "gradients, foreach=True or fused=True for optimizers.",
)


def _updates(trace: Trace) -> tuple[RowNumbers, Integers]:
    """Kernels of loops over tensors, in order of stream and start, and the loop of each."""
    kernels = trace.recorded("kernels")
    rows, opens = steady_in_order(trace)
    single = named(trace, _OF_ONE_TENSOR)[rows]
    stretch = np.cumsum(opens | groups.opens(single)) - 1
    at = np.flatnonzero(single)
    kind = groups.group(picked(stretch, at), picked(kernels.texts("name").codes, picked(rows, at)))
    often = np.zeros(len(rows), bool)
    often[at] = np.bincount(kind.ids)[kind.ids] >= _MANY_TENSORS
    run = np.cumsum(opens | groups.opens(often)) - 1
    rows, run = rows[often], run[often]
    if not len(rows):
        return rows, run
    by_run = groups.group(run)
    kinds = groups.distinct(by_run, kernels.texts("name").codes[rows])
    sizes = groups.distinct(by_run, kernels["grid_x"][rows])
    computes = groups.count(by_run, kernel_classes(trace)[rows] != KernelClass.CAST_COPY) > 0
    loops = computes & (groups.count(by_run) >= _MANY_TENSORS)
    loops = (loops & (kinds <= _MOST_KINDS) & (sizes >= _LEAST_SIZES))[by_run.ids]
    return rows[loops], run[loops]
