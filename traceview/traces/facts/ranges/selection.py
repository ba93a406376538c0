"""The work and calls selected with --range and --exclude-range.

Work belongs to a range by its launch call, whichever thread made it: it was launched while an
instance of the range was open anywhere in the process. Queue waits and depths are still computed
over everything that ran, as work outside the selection fills the queue ahead of work inside.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import numpy as np

from traceview.base import errors, groups
from traceview.base.intervals import Intervals, complement, inside, intersection, union
from traceview.base.records import record
from traceview.base.tables import (
    Array,
    Integers,
    Mask,
    RowNumbers,
    Texts,
    TextValues,
    constant,
    object_array,
    picked,
)
from traceview.traces.facts.operations import kernel_operations, operations
from traceview.traces.facts.ranges.ranges import RangeTree, range_tree
from traceview.traces.trace import Trace, fact

# Ranges that a text selects, and the text that selects one range alone.
#
# A text selects the ranges with that name or path. A path that several ranges have, with a count,
# as in `step_0 (6)`, selects the sixth of these in order of time. Any other text is a glob.

_COUNTED = re.compile(r"(.*) \(([1-9]\d{0,17})\)", re.DOTALL)


def matching_ranges(trace: Trace, text: str) -> Mask:
    """True for the ranges of the tree that the text selects."""
    tree = range_tree(trace)
    if not len(tree.row):
        return np.zeros(0, bool)
    names, paths = trace.recorded("ranges").texts("name"), tree.paths
    exact = names.take(tree.of_table).isin([text])
    exact |= np.isin(tree.path, paths.called(text))
    if exact.any():
        return exact
    counted = _COUNTED.fullmatch(text)
    if counted and (called := paths.called(counted[1])):
        rows = np.flatnonzero(tree.path == called[0])
        number = _number_by_path(rows, tree.path[rows], tree.nesting.start[rows])
        exact[rows[number == int(counted[2])]] = True
        return exact
    by_name = np.array([fnmatchcase(str(name), text) for name in names.values], bool)
    by_path = np.array([fnmatchcase(path, text) for path in paths], bool)
    return by_name[picked(names.codes, tree.of_table)] | by_path[tree.path]


def _number_by_path(rows: Integers, path: Array, start: Integers) -> Integers:
    """Number of each range among those of its path in order of time, from 1; `rows` ascend."""
    order = np.lexsort((start, path))
    number, index = np.zeros(len(rows), np.int64), np.arange(len(rows))
    first = np.where(groups.opens(path[order]), index, 0)
    number[order] = index - np.maximum.accumulate(first) + 1
    return number


@record
class RangeNames:
    """The shortest text that selects each range alone: its name, path, or path and count."""

    names: Texts
    unique: Mask
    """True where no other range has the name."""
    paths: Texts
    number: RowNumbers
    """Number among the ranges of its path in order of time, 0 for the only one."""

    def __len__(self) -> int:
        return len(self.names)

    def some(self, codes: Array) -> TextValues:
        """The texts of some of the ranges."""
        result = np.full(len(codes), None, object)
        unique = self.unique[codes]
        result[unique] = self.names.take(codes[unique]).decode()
        paths = self.paths.take(codes[~unique]).decode().tolist()
        pairs = zip(paths, self.number[codes[~unique]].tolist(), strict=True)
        texts = [f"{path} ({number})" if number else path for path, number in pairs]
        result[~unique] = object_array(texts)
        return result


def selecting_texts(trace: Trace, rows: Array) -> RangeNames:
    """Texts with which --range selects each of these ranges alone."""
    tree = range_tree(trace)
    every = trace.recorded("ranges").texts("name")
    names = every.take(tree.row[rows])
    codes = picked(every.codes, tree.of_table)
    counts = groups.frequencies(codes, int(codes.max(initial=0)) + 1)
    unique = counts[names.codes] == 1
    number, unsure = np.zeros(len(rows), np.int32), np.flatnonzero(~unique)
    paths = np.zeros(len(tree.paths), bool)
    paths[tree.path[rows[unsure]]] = True
    alike = [np.flatnonzero(paths[tree.path[p]]) + p.start for p in groups.parts(len(tree.path))]
    several = np.concatenate([np.zeros(0, np.int64), *alike])
    by_path = groups.group(tree.path[several])
    several = several[groups.count(by_path)[by_path.ids] > 1]
    if len(several):
        counted = _number_by_path(several, tree.path[several], tree.nesting.start[several])
        place = np.minimum(np.searchsorted(several, rows[unsure]), len(several) - 1)
        number[unsure] = np.where(several[place] == rows[unsure], counted[place], 0)
    return RangeNames(names, unique, tree.paths.texts(tree.path[rows]), number)


def check(trace: Trace) -> None:
    """Raise InputError if a glob of the selection matches no range of the trace."""
    tree = range_tree(trace)
    for glob in (*trace.selection.include, *trace.selection.exclude):
        if not matching_ranges(trace, glob).any():
            patterns = list(dict.fromkeys(text[:60] for text in tree.patterns))
            first = ", ".join(repr(text) for text in patterns[:8])
            more = f" and {len(patterns) - 8} more" if len(patterns) > 8 else ""
            listed = f"ranges in the trace, numbers as #: {first}{more}"
            remedy = listed if patterns else "the trace has no NVTX ranges"
            raise errors.InputError(f"no range matches {glob!r}", remedy)


def _windows(trace: Trace, globs: tuple[str, ...]) -> dict[int, Intervals]:
    """Time in which a range that matches a glob is open, by process."""
    tree = range_tree(trace)
    hit = np.zeros(len(tree.row), bool)
    for glob in globs:
        hit |= matching_ranges(trace, glob)
    return windows_of(tree, hit)


def windows_of(tree: RangeTree, hit: Mask) -> dict[int, Intervals]:
    """Time in which one of these ranges is open, by process."""
    rows = np.flatnonzero(hit)
    start, end = tree.nesting.start[rows], tree.nesting.end[rows]
    by_process = groups.rows_of(tree.process_of(rows))
    return {process: union(start[place], end[place]) for process, place in by_process.items()}


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


def selected_kernels(trace: Trace) -> Mask:
    """True for the rows of kernels that are selected."""
    return selected_operations(trace)[kernel_operations(trace)]


@fact
def issued_ns(trace: Trace) -> Integers:
    """When the CPU issued each operation: the start of its call, else its own start."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    issued = ops.start_ns.copy()
    issued[ops.launched] = picked(calls["start_ns"], ops.call[ops.launched])
    return issued
