"""Trials at the start of a program: of convolution algorithms (cuDNN), of kernel configurations."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes
from traceview.traces.facts.operations import Kind, Operations, operations
from traceview.traces.trace import Trace, fact

# Trials of convolution algorithms: cuDNN runs each candidate before it settles (benchmark mode).
#
# A trial is a run of convolution kernels of several names with nothing but changes of layout
# between them, where each algorithm runs twice in succession. A network has other kernels between
# its convolutions, or repeats the same run in every pass.

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
        rows = np.flatnonzero((ops.process == process) & (ops.kind != Kind.SET))
        is_kernel = ops.kind[rows] == Kind.KERNEL
        row = np.where(is_kernel, ops.row[rows], 0)
        layout = is_kernel & (kernel_classes(trace)[row] == KernelClass.CAST_COPY)
        convolution, names = is_kernel & is_convolution[row], kernels.texts("name")
        first, last = trial_runs(np.where(is_kernel, names.codes[row], -1), convolution, layout)
        if len(first):
            start, end = ops.start_ns[rows], ops.end_ns[rows]
            # One more than the last kernel so far that is no layout change.
            others = np.maximum.accumulate(np.where(layout, 0, np.arange(1, len(rows) + 1)))
            before = np.append(start[:1], end)[np.append(0, others)[first]]
            trials = intervals.union(np.minimum(before, start[first]), end[last])
            by_name = names.matching(lambda name: "cudnn::" in name)[row]
            by_cudnn = convolution | layout | (is_kernel & by_name)
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
    runs = [name[kept[first:last]] for first, last in zip(begin, end, strict=True)]
    often = Counter(run.tobytes() for run in runs)
    trial = np.array(
        [
            len(groups.different(run)) >= LEAST_ALGORITHMS
            and np.mean(run[1:] == run[:-1]) >= TWICE
            and often[run.tobytes()] <= MOST_REPEATS
            for run in runs
        ],
        bool,
    )
    return kept[begin[trial]], kept[end[trial] - 1]


# Trials of kernel configurations, as autotuners of Triton and Inductor run them.
#
# An autotuner calls each candidate many times and clears the L2 cache before each call, by a
# memset or a fill of one size. What tells it from a benchmark of the program's own is a kernel
# that is tried with several numbers of threads or registers.

LEAST_CALLS, MOST_KERNELS = 4, 8
"""The fewest calls in succession that are a trial, and the most kernels of one call."""
LEAST_CLEARED_BYTES, LEAST_FILLING_THREADS = 4 << 20, 1 << 19
"""Less than an L2 cache: a memset or a fill of that size clears something else."""
PAUSE_NS = 200_000_000
"""Between two trials an autotuner builds the next candidate for so long."""
_FILL = "FillFunctor"
_MIXED = np.uint64(0x9E3779B97F4A7C15)


@record
class ConfigurationTrials:
    """Windows of trials: of kernels in several configurations, and of other kernels.

    The latter are a library's kernels that a compiler compares, or a benchmark of the program's.
    """

    tuned: Intervals
    others: Intervals


@fact
def configuration_trials(trace: Trace) -> dict[int, ConfigurationTrials]:
    """Windows of trials by process."""
    ops, result = operations(trace), {}
    kernels, memsets = trace.recorded("kernels"), trace.recorded("sets")
    # Operations that overwrite as much memory as an L2 cache holds.
    fills = kernels.texts("name").matching(lambda name: _FILL in name)
    threads = kernels["grid_x"].astype(np.int64) * kernels["block_x"]
    clears = np.zeros(len(ops), bool)
    for kind, wide in (
        (Kind.KERNEL, fills & (threads >= LEAST_FILLING_THREADS)),
        (Kind.SET, memsets["bytes"] >= LEAST_CLEARED_BYTES),
    ):
        of_kind = ops.kind == kind
        clears[of_kind] = wide[ops.row[of_kind]]
    names = ("grid_x", "block_x", "registers_per_thread")
    columns = (kernels.texts("name").codes, *(kernels[name] for name in names))
    for process in groups.different(ops.process[clears]).tolist():
        own = np.flatnonzero(ops.process == process)
        # A number per operation, equal for equal launches and for memsets of one size.
        launched, cleared = ops.kind[own] == Kind.KERNEL, ops.kind[own] == Kind.SET
        properties = np.zeros((len(columns), len(own)), np.int64)
        for values, column in zip(properties, columns, strict=True):
            values[launched] = column[ops.row[own[launched]]]
        properties[0, cleared] = memsets["bytes"][ops.row[own[cleared]]]
        identity = groups.group(ops.kind[own], *properties).ids
        first, last, tried = trial_calls(identity, clears[own])
        if not len(first):
            continue
        start, end = ops.start_ns[own[first]], ops.end_ns[own[last]]
        bounds = np.flatnonzero(np.append(True, start[1:] - end[:-1] > PAUSE_NS))
        tuned = np.maximum.reduceat(_tuned(trace, ops, own[tried]), bounds)
        begin, stop = start[bounds], end[np.append(bounds[1:], len(end)) - 1]
        windows = (intervals.union(begin[rows], stop[rows]) for rows in (tuned, ~tuned))
        result[process] = ConfigurationTrials(*windows)
    return result


def trial_calls(identity: Integers, clears: Mask) -> tuple[Integers, Integers, Integers]:
    """Indices of the first and last operation of each trial, and of one operation that it tries.

    A trial is a run of equal calls, each after the same clearing of the cache. `identity` and
    `clears` have one element per operation, in order of start.
    """
    clearing = np.flatnonzero(clears)
    if len(clearing) < LEAST_CALLS + 1:
        return clearing[:0], clearing[:0], clearing[:0]
    kernels = np.diff(clearing) - 1
    mixed = np.append(np.uint64(0), np.cumsum((identity.astype(np.uint64) + np.uint64(1)) * _MIXED))
    call = (mixed[clearing[1:]] - mixed[clearing[:-1] + 1]).view(np.int64)
    kind = groups.group(kernels, call, identity[clearing[:-1]]).ids
    opens = np.flatnonzero(groups.opens(kind))
    closes = np.append(opens[1:], len(kind))
    trial = (closes - opens >= LEAST_CALLS) & (kernels[opens] > 0)
    trial &= kernels[opens] <= MOST_KERNELS
    opens, closes = opens[trial], closes[trial]
    return clearing[opens], clearing[closes] - 1, clearing[opens] + 1


def _tuned(trace: Trace, ops: Operations, tried: Array) -> Mask:
    """True for the trials of a kernel that was tried with other threads or registers as well."""
    kernels, rows = trace.recorded("kernels"), ops.row[tried]
    launched = ops.kind[tried] == Kind.KERNEL
    rows = np.where(launched, rows, 0)
    name = np.where(launched, kernels.texts("name").codes[rows], -1)
    shape = kernels["block_x"][rows], kernels["registers_per_thread"][rows]
    kinds = groups.group(name, *(np.where(launched, column, 0) for column in shape))
    variants = groups.group(name[kinds.first])
    several = groups.count(variants) > 1
    return several[variants.ids][kinds.ids] & launched
