"""What is compared of a run: the steady steps of its main GPU, and the operations in them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from traceview import groups, intervals
from traceview.errors import ComparisonRefusedError
from traceview.facts.idle.causes import gap_causes
from traceview.facts.idle.gaps import device_work, every_gap, steady_spans_ns
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.phases.compilation import compiling
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.steps import recompilation, warm_up
from traceview.facts.steps.loops import WARMED_UP_STEPS
from traceview.facts.steps.steps import pace, step_of_operations, steps, warm_up_end_ns
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

# Exclusive time: at each instant of a window at most one of the intervals that cover it.


def exclusive_ns(start: Integers, end: Integers, precedence: Array, window: Intervals) -> Integers:
    """Time of each interval that belongs to it alone, in ns; the times sum to their union's.

    An instant belongs to the interval of least `precedence`, among equals to the one that started
    first, then to the first row. Rows are in order of start.
    """
    own, free = np.zeros(len(start), np.int64), window
    for level in groups.different(precedence).tolist():
        rows = np.flatnonzero((precedence == level) & (end > start))
        if not len(rows):
            continue
        # Earlier intervals cover this one up to their latest end so far.
        reach = np.maximum.accumulate(end[rows])
        begin = np.maximum(start[rows], np.append(start[rows[:1]], reach[:-1]))
        own[rows] = intervals.overlap(free, np.minimum(begin, end[rows]), end[rows])
        free = without(free, intervals.union(start[rows], end[rows]))
    return own


def without(window: Intervals, claimed: Intervals) -> Intervals:
    """The part of the union `window` that the union `claimed` does not cover."""
    if not len(window.start) or not len(claimed.start):
        return window
    first, last = int(window.start[0]), int(window.end[-1])
    return intervals.intersection(window, intervals.complement(claimed, first, last))


@record
class RunWindow:
    """The steps that are compared, on one GPU (row in devices).

    `steps` are rows in steps, empty where the trace has none. `covered` is the time of the steps as
    a union, `step_ns` the duration of each; without steps `step_ns` has one entry, the steady time.
    Neither has idle time that a longer run does not repeat.
    """

    device: int
    steps: Integers
    step_ns: Integers
    covered: Intervals

    @property
    def total_ns(self) -> int:
        return self.covered.total()


@fact
def run_window(trace: Trace) -> RunWindow:
    """The steady steps of the GPU with the longest steady span.

    Raises ComparisonRefusedError where no GPU work was recorded.
    """
    spans, work = steady_spans_ns(trace), device_work(trace)
    if not spans:
        raise ComparisonRefusedError(
            f"{trace.path} has no GPU work to compare",
            "record a program that runs work on a GPU",
        )
    # The busiest of GPUs with equal spans.
    device = max(spans, key=lambda gpu: (spans[gpu], work[gpu].steady_ns))
    rows = _steady_steps(trace, device)
    if not len(rows):
        covered = _steady_time(trace, device)
        return RunWindow(device, rows, np.array([covered.total()]), covered)
    begin, end = pace(trace).begin_ns[rows], pace(trace).end_ns[rows]
    every, gaps = intervals.union(begin, end), every_gap(trace)
    # No longer run repeats first uses of kernels and compilation.
    once = gap_causes(trace).first_use | compiling(trace, gaps.start_ns, gaps.end_ns)
    once &= ~recompilation.recompiling(trace, gaps.start_ns, gaps.end_ns) & (gaps.device == device)
    covered = without(every, intervals.union(gaps.start_ns[once], gaps.end_ns[once]))
    covered = covered if covered.total() else every
    return RunWindow(device, rows, intervals.overlap(covered, begin, end), covered)


def _steady_steps(trace: Trace, device: int) -> Integers:
    """Rows of steps after warm-up with work on a GPU, in the series that takes most time."""
    all_steps, timed, step = steps(trace), pace(trace), step_of_operations(trace)
    with_work = groups.different(step[(operations(trace).device == device) & (step >= 0)])
    if not len(with_work):
        return np.zeros(0, np.int64)
    series = groups.different(all_steps.series[with_work])
    rows = np.flatnonzero(
        np.isin(all_steps.series, series) & (all_steps.operations > 0) & timed.timed
    )
    total_ns = np.bincount(all_steps.series[rows], timed.duration_ns[rows])
    rows = rows[all_steps.series[rows] == np.argmax(total_ns)]
    warm = timed.warm_up[rows].copy()
    # The first step loads code and fills caches, even where it takes no longer.
    warm[0] |= len(rows) >= WARMED_UP_STEPS
    steady: Integers = rows if warm.all() else rows[~warm]
    return steady


def _steady_time(trace: Trace, device: int) -> Intervals:
    """Busy and idle time of a GPU without warm-up and first uses, as a union."""
    ops, every = operations(trace), every_gap(trace)
    chosen = (ops.device == device) & (ops.start_ns >= warm_up_end_ns(trace))
    warm = warm_up.operations_in_warm_up_ranges(trace)
    if warm is not None:
        chosen &= ~warm
    kept = (every.device == device) & ~every.one_time
    return intervals.union(
        np.concatenate((ops.start_ns[chosen], every.start_ns[kept])),
        np.concatenate((ops.end_ns[chosen], every.end_ns[kept])),
    )


class WorkKind(IntEnum):
    """The kind of an operation in a comparison."""

    KERNEL = 0
    GRAPH = 1
    COMMUNICATION = 2
    COPY = 3
    MEMSET = 4


_OF_OPERATION = {
    Kind.KERNEL: WorkKind.KERNEL, Kind.COPY: WorkKind.COPY, Kind.SET: WorkKind.MEMSET,
    Kind.GRAPH: WorkKind.GRAPH,
}  # fmt: skip
_PRECEDENCE = np.array([0, 0, 1, 2, 3])


@record
class WindowWork:
    """The operations that belong to the steps of the window or run in it, in order of start.

    `rows` are rows in operations. `own_ns` is an operation's exclusive time in the window,
    `busy_ns` all of its time in it. `counted` is True for operations of the steps, and for others
    that start in the window.
    """

    rows: Integers
    kind: Array
    own_ns: Integers
    busy_ns: Integers
    counted: Mask
    idle: Intervals
    """The rest of the window."""


@fact
def window_work(trace: Trace) -> WindowWork:
    """The work of the GPU that is compared."""
    ops, window = operations(trace), run_window(trace)
    starts_inside = intervals.inside(window.covered, ops.start_ns)
    counted = in_steps(window, step_of_operations(trace), starts_inside)
    touching = intervals.overlap(window.covered, ops.start_ns, np.maximum(ops.end_ns, ops.start_ns))
    rows = np.flatnonzero((ops.device == window.device) & (counted | (touching > 0)))
    kinds = np.array([_OF_OPERATION[kind] for kind in Kind], np.int64)[ops.kind]
    kinds[communication_operations(trace)] = WorkKind.COMMUNICATION
    start, end, kind = ops.start_ns[rows], ops.end_ns[rows], kinds[rows]
    own = exclusive_ns(start, end, _PRECEDENCE[kind], window.covered)
    idle = without(window.covered, intervals.union(start, end))
    return WindowWork(rows, kind, own, touching[rows], counted[rows], idle)


def in_steps(window: RunWindow, step: Array, otherwise: Mask) -> Mask:
    """True for entries whose `step` is one of the window's; those without any get `otherwise`.

    `step` has one row of steps per entry, −1 for none.
    """
    if not len(window.steps):
        return otherwise
    chosen = np.zeros(int(max(step.max(initial=-1), window.steps.max())) + 2, bool)
    chosen[window.steps] = True
    result: Mask = np.where(step >= 0, chosen[step], otherwise)
    return result


@fact
def step_pattern(trace: Trace) -> str:
    """The pattern of the range path of the window's steps; empty without steps."""
    in_window, tree = run_window(trace).steps, range_tree(trace)
    if not len(in_window):
        return ""
    row = steps(trace).range[in_window[:1]]
    return tree.patterns[int(tree.path_pattern[tree.path[row]][0])]
