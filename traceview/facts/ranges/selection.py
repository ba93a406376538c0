"""The work and calls selected with --range and --exclude-range.

Work belongs to a range by its launch call, whichever thread made it: it was launched while an
instance of the range was open anywhere in the process. Queue waits and depths are still computed
over everything that ran, as work outside the selection fills the queue ahead of work inside.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.errors import InputError
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.patterns import matching_ranges
from traceview.facts.ranges.ranges import RangeTree, range_tree
from traceview.intervals import Intervals, complement, inside, intersection, union
from traceview.tables import Array, Integers, Mask, constant, picked
from traceview.trace import Trace, fact


def check(trace: Trace) -> None:
    """Raise InputError if a glob of the selection matches no range of the trace."""
    tree = range_tree(trace)
    for glob in (*trace.selection.include, *trace.selection.exclude):
        if not matching_ranges(trace, glob).any():
            known = list(dict.fromkeys(text[:60] for text in tree.patterns))
            first = ", ".join(repr(text) for text in known[:8])
            more = f" and {len(known) - 8} more" if len(known) > 8 else ""
            listed = f"ranges in the trace, numbers as #: {first}{more}"
            remedy = listed if known else "the trace has no NVTX ranges"
            raise InputError(f"no range matches {glob!r}", remedy)


def _windows(trace: Trace, globs: tuple[str, ...]) -> dict[int, Intervals]:
    """Time in which a range that matches a glob is open, by process."""
    tree = range_tree(trace)
    hit = np.zeros(len(tree.row), bool)
    for glob in globs:
        hit |= matching_ranges(trace, glob)
    return windows_of(tree, hit)


def windows_of(tree: RangeTree, hit: Mask) -> dict[int, Intervals]:
    """Time in which one of these ranges is open, by process."""
    windows = {}
    rows = np.flatnonzero(hit)
    for process, own in groups.rows_of(tree.process_of(rows)).items():
        windows[process] = union(tree.nesting.start[rows[own]], tree.nesting.end[rows[own]])
    return windows


def selected_windows(trace: Trace) -> dict[int, Intervals]:
    """Selected time by process, for a selection that includes ranges."""
    windows = _windows(trace, trace.selection.include)
    excluded = _windows(trace, trace.selection.exclude)
    for process, window in windows.items():
        if process in excluded and len(window.start):
            bounds = int(window.start[0]), int(window.end[-1])
            windows[process] = intersection(window, complement(excluded[process], *bounds))
    return windows


def selected(trace: Trace, process: Array, time: Integers) -> Mask:
    """True for the selected (process, time) pairs: all of them without a selection."""
    if not trace.selection:
        return constant(True, len(time), bool)
    chosen = np.ones(len(time), bool)
    if trace.selection.include:
        chosen = within(_windows(trace, trace.selection.include), process, time)
    if trace.selection.exclude:
        chosen &= ~within(_windows(trace, trace.selection.exclude), process, time)
    return chosen


def within(windows: dict[int, Intervals], process: Array, time: Integers) -> Mask:
    """True for the (process, time) pairs that lie in the windows of their process."""
    result = np.zeros(len(time), bool)
    for number, window in windows.items():
        of_process = process == number
        result[of_process] = inside(window, time[of_process])
    return result


def selected_ranges(trace: Trace) -> Mask:
    """True for the ranges of the tree that begin in selected time."""
    tree = range_tree(trace)
    if not trace.selection:
        return constant(True, len(tree.row), bool)
    return selected(trace, tree.process, tree.nesting.start)


@fact
def selected_calls(trace: Trace) -> Mask:
    """True for the rows of api_calls that are selected."""
    calls = trace.recorded("api_calls")
    return selected(trace, calls["process"], calls["start_ns"])


@fact
def selected_operations(trace: Trace) -> Mask:
    """True for the operations that are selected: by their call, else by their own start."""
    ops = operations(trace)
    if not trace.selection:
        return constant(True, len(ops), bool)
    return selected(trace, ops.process, issued_ns(trace))


@fact
def issued_ns(trace: Trace) -> Integers:
    """When the CPU issued each operation: the start of its call, else its own start."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    issued = ops.start_ns.copy()
    issued[ops.launched] = picked(calls["start_ns"], ops.call[ops.launched])
    return issued
