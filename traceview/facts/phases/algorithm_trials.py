"""Trials of convolution algorithms: cuDNN runs each candidate before it settles (benchmark mode).

A trial is a run of convolution kernels of several names with nothing but changes of layout between
them, where each algorithm runs twice in succession. A network has other kernels between its
convolutions, or repeats the same run in every pass.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import Kind, operations
from traceview.intervals import Intervals
from traceview.tables import Integers, Mask, Table
from traceview.trace import Trace, fact

LEAST_KERNELS, LEAST_ALGORITHMS = 6, 3
TWICE = 0.3
"""Least fraction of a run's kernels that repeat the kernel before them."""
PREPARES_NS, NEAR_NS = 10_000_000, 500_000_000
"""A GPU that idles for so long before a kernel of cuDNN, this close to a trial, waits for the next
candidates: a trial of few algorithms does not show in the kernels."""
MOST_REPEATS = 3
"""A kernel that occurs more often is part of the network."""


@fact
def algorithm_trials(trace: Trace) -> dict[int, Intervals]:
    """Windows of algorithm trials, by process.

    A window begins when the work before it ends, as cuDNN builds the candidates before trying any.
    """
    kernels, ops = trace.recorded("kernels"), operations(trace)
    is_convolution = kernel_classes(trace) == KernelClass.CONVOLUTION
    result: dict[int, Intervals] = {}
    for process in groups.different(kernels["process"][is_convolution]).tolist():
        own = np.flatnonzero((ops.process == process) & (ops.kind != Kind.SET))
        is_kernel = ops.kind[own] == Kind.KERNEL
        row = np.where(is_kernel, ops.row[own], 0)
        layout = kernel_classes(trace)[row] == KernelClass.CAST_COPY
        first, last = trial_runs(
            np.where(is_kernel, kernels.texts("name").codes[row], -1),
            is_kernel & is_convolution[row],
            is_kernel & layout,
        )
        if len(first):
            start, end = ops.start_ns[own], ops.end_ns[own]
            before = np.append(start[:1], end)[_before(is_kernel & layout, first)]
            trials = intervals.union(np.minimum(before, start[first]), end[last])
            by_cudnn = is_kernel & (is_convolution[row] | layout | _of_cudnn(kernels)[row])
            result[process] = with_preparation(trials, start, end, by_cudnn)
    return result


def with_preparation(
    trials: Intervals, start: Integers, end: Integers, by_cudnn: Mask
) -> Intervals:
    """The trials, extended by nearby idle time before cuDNN kernels.

    `start`, `end` and `by_cudnn` have one entry per operation, in order of start.
    """
    idle_from = np.maximum.accumulate(end)[:-1]
    idle_to, waits = start[1:], by_cudnn[1:] & (start[1:] - idle_from >= PREPARES_NS)
    after = np.searchsorted(trials.start, idle_from[waits], side="right")
    last_end = np.append(np.iinfo(np.int64).min // 2, trials.end)[after]
    next_start = np.append(trials.start, np.iinfo(np.int64).max // 2)[after]
    near = (idle_from[waits] - last_end <= NEAR_NS) | (next_start - idle_to[waits] <= NEAR_NS)
    begin, stop = idle_from[waits][near], idle_to[waits][near]
    return intervals.union(
        np.concatenate((trials.start, begin)), np.concatenate((trials.end, stop))
    )


def _of_cudnn(kernels: Table) -> Mask:
    names = kernels.texts("name")
    return names.isin([name for name in names.values if "cudnn::" in str(name)])


def _before(is_layout: Mask, row: Integers) -> Integers:
    """One more than the last kernel before each `row` that is no layout change; 0 without any."""
    others = np.where(is_layout, 0, np.arange(1, len(is_layout) + 1))
    return np.append(0, np.maximum.accumulate(others))[row]


def trial_runs(name: Integers, is_convolution: Mask, is_layout: Mask) -> tuple[Integers, Integers]:
    """First and last row of each run of trials in a sequence of kernels.

    `name` has numbers of the kernels' names; all arrays have shape (kernels,), in order of start.
    """
    kept = np.flatnonzero(~is_layout)
    chosen = np.append(np.append(False, is_convolution[kept]), False)
    edges = np.flatnonzero(chosen[1:] != chosen[:-1])
    begin, end = edges[::2], edges[1::2]
    long = end - begin >= LEAST_KERNELS
    begin, end = begin[long], end[long]
    names = name[kept]
    several = [len(groups.different(names[a:b])) for a, b in zip(begin, end, strict=True)]
    twice = [
        float(np.mean(names[a + 1 : b] == names[a : b - 1]))
        for a, b in zip(begin, end, strict=True)
    ]
    kind = [hash(names[a:b].tobytes()) for a, b in zip(begin, end, strict=True)]
    _, number, often = np.unique(np.array(kind, np.int64), return_inverse=True, return_counts=True)
    trial = (np.array(several, np.int64) >= LEAST_ALGORITHMS) & (np.array(twice) >= TWICE)
    trial &= often[number] <= MOST_REPEATS
    return kept[begin[trial]], kept[end[trial] - 1]
