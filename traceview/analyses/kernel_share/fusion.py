"""Runs of small library kernels that one kernel could compute: unfused chains, unfused optimizers.

Elementwise kernels are bound by memory, so a fused kernel takes about as long as the longest of
those it replaces. On an H200, nanoGPT's kernels took 3.72 ms per step, of which this rule says
that 0.917 ms can be saved; with torch.compile they took 2.80 ms, 0.925 ms less.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups, intervals
from traceview.compiled.columns.gather import gather
from traceview.facts.idle.gpu_limited import claimable_ns, gain_of_device_ns
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import Kind, operations, operations_by_stream
from traceview.facts.steps.steps import step_of_operations
from traceview.facts.steps.warm_up import steady_kernels
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.trace import Trace, fact

# Kernels of eager operators: those of compilers and of hand-written code are fused already.
_TORCH, _CUPY = re.compile(r"\bat::native::"), re.compile(r"^cupy_")
_FUSES = (
    KernelClass.ELEMENTWISE,
    KernelClass.CAST_COPY,
    KernelClass.NORMALIZATION,
    KernelClass.REDUCTION,
    KernelClass.SOFTMAX,
    KernelClass.RANDOM,
)
_FUSED_OPTIMIZER = re.compile(r"Fused\w*Optimizer|Fused(?:Adam|SGD|Adagrad)\w*|LpNorm|lpnorm")


@record
class Runs:
    """Runs of at least two kernels, one after another on a stream of one GPU, after warm-up.

    `less_ns` is their time without the longest kernel of each run, `saved_ns` the part of it that
    the program gains, `gain_ns` the gain if the CPU launched all work in time. `class_ns` is their
    time by `KernelClass`.
    """

    device: int
    runs: int
    kernels: int
    total_ns: int
    less_ns: int
    saved_ns: int
    gain_ns: int
    class_ns: dict[KernelClass, int]
    longest: tuple[int, int]
    """Start and end of the run that takes longest, in ns."""
    time: Intervals
    """When the kernels ran."""


def unfused_kernels(trace: Trace, others: Mask) -> tuple[Runs, ...]:
    """The runs of eager kernels that could be one kernel each, by GPU, without the `others`."""
    kinds = kernel_classes(trace)
    eager = matching_kernels(trace, _TORCH) & np.isin(kinds, _FUSES)
    # cupy.fuse takes no reduction but the last operation of a chain.
    eager |= matching_kernels(trace, _CUPY) & np.isin(kinds, _FUSES[:2])
    return _runs(trace, eager & ~others, np.arange(len(eager)))


def unfused_optimizer(trace: Trace) -> tuple[Runs, ...]:
    """The runs of foreach kernels of optimizers, by GPU; norms of gradients are left out.

    An operation over all tensors takes several launches, so the longest operation of a run counts
    instead of the longest kernel.
    """
    foreach = (kernel_classes(trace) == KernelClass.OPTIMIZER) & ~matching_kernels(
        trace, _FUSED_OPTIMIZER
    )
    return _runs(trace, foreach, trace.recorded("kernels").texts("name").codes)


def matching_kernels(trace: Trace, rule: re.Pattern[str]) -> Mask:
    """True for the kernels whose names match."""
    names = trace.recorded("kernels").texts("name")
    matches = np.zeros(len(names.values) + 1, bool)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        matches[code] = bool(rule.search(str(names.values[code])))
    result: Mask = gather(matches, names.codes)
    return result


def _runs(trace: Trace, wanted: Mask, operation: Array) -> tuple[Runs, ...]:
    """Runs of the wanted kernels, by GPU; kernels of equal `operation` are one operation.

    A run ends with its step: nothing fuses kernels of two steps.
    """
    rows, opens = steady_in_order(trace)
    is_wanted = picked(wanted, rows)
    run = np.cumsum(opens | groups.opens(is_wanted)) - 1
    run, rows = run[is_wanted], rows[is_wanted]
    if not len(rows):
        return ()
    several = np.bincount(run)[run] > 1
    run, rows = run[several], rows[several]
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    return tuple(
        _of_device(trace, device, run[own], rows[own], operation)
        for device, own in by_device.items()
    )


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
) -> Runs:
    kernels = trace.recorded("kernels")
    duration_ns, kinds = kernels.duration_ns[rows], kernel_classes(trace)[rows]
    by_run = groups.group(run)
    by_operation = groups.group(by_run.ids, operation[rows])
    time, of_run = groups.sums(by_operation, duration_ns), by_run.ids[by_operation.first]
    longest_last = np.lexsort((time, of_run))
    longest = longest_last[np.append(groups.opens(of_run[longest_last])[1:], True)]
    stays = np.isin(by_operation.ids, longest)
    less_ns = np.where(stays, 0, duration_ns)
    total = groups.sums(by_run, duration_ns)
    most = by_run.ids == int(np.argmax(total))
    by_class = np.zeros(len(KernelClass), np.int64)
    np.add.at(by_class, kinds, duration_ns)
    return Runs(
        device,
        by_run.size,
        len(rows),
        int(total.sum()),
        int(less_ns.sum()),
        claimable_ns(trace, device, rows, less_ns),
        gain_of_device_ns(trace, rows, less_ns),
        {kind: int(by_class[kind]) for kind in KernelClass if by_class[kind]},
        (int(kernels["start_ns"][rows[most]].min()), int(kernels["end_ns"][rows[most]].max())),
        intervals.union(kernels["start_ns"][rows], kernels["end_ns"][rows]),
    )
