"""The operations of a run's window: their exclusive time and their kind."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from traceview import intervals
from traceview.comparison.extraction.window import RunWindow, exclusive_ns, run_window, without
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.steps.steps import step_of_operations, steps
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact


class WorkKind(IntEnum):
    """The kind of an operation in a comparison."""

    KERNEL = 0
    GRAPH = 1
    COMMUNICATION = 2
    COPY = 3
    MEMSET = 4


_OF_OPERATION = {
    Kind.KERNEL: WorkKind.KERNEL,
    Kind.COPY: WorkKind.COPY,
    Kind.SET: WorkKind.MEMSET,
    Kind.GRAPH: WorkKind.GRAPH,
}
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
    chosen = ops.device == window.device
    counted = _counted(trace, window)
    touching = intervals.overlap(window.covered, ops.start_ns, np.maximum(ops.end_ns, ops.start_ns))
    rows = np.flatnonzero(chosen & (counted | (touching > 0)))
    start, end, kind = ops.start_ns[rows], ops.end_ns[rows], _kinds(trace)[rows]
    own = exclusive_ns(start, end, _PRECEDENCE[kind], window.covered)
    idle = without(window.covered, intervals.union(start, end))
    return WindowWork(rows, kind, own, touching[rows], counted[rows], idle)


def _counted(trace: Trace, window: RunWindow) -> Mask:
    """True for the operations of the window's steps, and others that start in the window."""
    ops = operations(trace)
    starts = intervals.inside(window.covered, ops.start_ns)
    return in_steps(window, step_of_operations(trace), starts)


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


def _kinds(trace: Trace) -> Array:
    ops = operations(trace)
    table = np.array([_OF_OPERATION[kind] for kind in Kind], np.int64)
    kind = table[ops.kind]
    kind[communication_operations(trace)] = WorkKind.COMMUNICATION
    return kind


@fact
def step_pattern(trace: Trace) -> str:
    """The pattern of the range path of the window's steps; empty without steps."""
    in_window, tree = run_window(trace).steps, range_tree(trace)
    if not len(in_window):
        return ""
    row = steps(trace).range[in_window[:1]]
    return tree.patterns[int(tree.path_pattern[tree.path[row]][0])]
