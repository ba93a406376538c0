"""Runs of small library kernels that one kernel could compute: unfused chains, unfused optimizers.

Elementwise kernels are bound by memory, so a fused kernel takes about as long as the longest of
those it replaces. On an H200, nanoGPT's kernels took 3.72 ms per step, of which this rule says
that 0.917 ms can be saved; with torch.compile they took 2.80 ms, 0.925 ms less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import Kind, operations, operations_by_stream
from traceview.facts.steps.steps import step_of_operations
from traceview.facts.steps.warm_up import steady_kernels
from traceview.rules.engine import TimeClaim
from traceview.rules.kernels import class_claim, named
from traceview.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.trace import Trace, fact

# Kernels of eager operators: those of compilers and of hand-written code are fused already.
_TORCH, _CUPY = r"\bat::native::", r"^cupy_"
_FUSES = (
    KernelClass.ELEMENTWISE,
    KernelClass.CAST_COPY,
    KernelClass.NORMALIZATION,
    KernelClass.REDUCTION,
    KernelClass.SOFTMAX,
    KernelClass.RANDOM,
)
_FUSED_OPTIMIZER = r"Fused\w*Optimizer|Fused(?:Adam|SGD|Adagrad)\w*|LpNorm|lpnorm"


def unfused_kernels(trace: Trace, others: Mask) -> Iterator[TimeClaim]:
    """A claim on the runs of eager kernels that could be one kernel each, without the `others`."""
    kinds = kernel_classes(trace)
    eager = named(trace, _TORCH) & np.isin(kinds, _FUSES)
    # cupy.fuse takes no reduction but the last operation of a chain.
    eager |= named(trace, _CUPY) & np.isin(kinds, _FUSES[:2])
    return _runs(trace, eager & ~others, np.arange(len(eager)))


def unfused_optimizer(trace: Trace) -> Iterator[TimeClaim]:
    """A claim on the runs of foreach kernels of optimizers; norms of gradients are left out.

    An operation over all tensors takes several launches, so the longest operation of a run counts
    instead of the longest kernel.
    """
    foreach = kernel_classes(trace) == KernelClass.OPTIMIZER
    if foreach.any():
        foreach &= ~named(trace, _FUSED_OPTIMIZER)
    return _runs(trace, foreach, trace.recorded("kernels").texts("name").codes)


def _runs(trace: Trace, wanted: Mask, operation: Array) -> Iterator[TimeClaim]:
    """Runs of the wanted kernels, on the GPU where fusing them saves most.

    Kernels of equal `operation` are one operation. A run has two kernels or more, and ends with its
    step: nothing fuses kernels of two steps.
    """
    if not wanted.any():
        return
    rows, opens = steady_in_order(trace)
    is_wanted = picked(wanted, rows)
    run = np.cumsum(opens | groups.opens(is_wanted)) - 1
    run, rows = run[is_wanted], rows[is_wanted]
    if not len(rows):
        return
    several = np.bincount(run)[run] > 1
    run, rows = run[several], rows[several]
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    claims = [
        _of_device(trace, device, run[own], rows[own], operation)
        for device, own in by_device.items()
    ]
    if claims:
        yield max(claims, key=lambda each: each.gain)


@fact
def steady_in_order(trace: Trace) -> tuple[RowNumbers, Mask]:
    """The steady kernels by stream and start, and where another stream or step begins."""
    ops, order = operations(trace), operations_by_stream(trace)
    order = order[picked(ops.kind, order) == Kind.KERNEL]
    order = order[picked(steady_kernels(trace), picked(ops.row, order))]
    stream, step = picked(ops.stream, order), picked(step_of_operations(trace), order)
    return picked(ops.row, order), groups.opens(stream, step)


def _of_device(
    trace: Trace, device: int, run: Integers, rows: RowNumbers, operation: Array
) -> TimeClaim:
    kernels = trace.recorded("kernels")
    duration_ns = kernels.duration_ns[rows]
    by_run = groups.group(run)
    by_operation = groups.group(by_run.ids, operation[rows])
    time, of_run = groups.sums(by_operation, duration_ns), by_run.ids[by_operation.first]
    longest_last = np.lexsort((time, of_run))
    longest = longest_last[np.append(groups.opens(of_run[longest_last])[1:], True)]
    stays = np.isin(by_operation.ids, longest)
    less_ns = np.where(stays, 0, duration_ns)
    most = by_run.ids == int(np.argmax(groups.sums(by_run, duration_ns)))
    window = int(kernels["start_ns"][rows[most]].min()), int(kernels["end_ns"][rows[most]].max())
    values = {
        "kernels": len(rows),
        "runs": by_run.size,
        "total_ns": int(duration_ns.sum()),
        "less_ns": int(less_ns.sum()),
    }
    return replace(class_claim(trace, device, rows, values, less_ns), window=window)
