"""NVTX ranges as a tree, and the range to which a call belongs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ctypes import c_int64
from dataclasses import replace
from functools import cached_property

import numpy as np

from traceview.base import groups
from traceview.base.compiled import library
from traceview.base.records import record
from traceview.base.tables import (
    NULL,
    Array,
    Integers,
    Mask,
    RowNumbers,
    Texts,
    constant,
    picked,
    row_numbers,
)
from traceview.traces.facts.operations import operations
from traceview.traces.facts.ranges.nesting import (
    Nesting,
    in_nesting_order,
    inherited,
    nest,
    with_ancestors,
)
from traceview.traces.facts.ranges.origins import library_domains, range_name_forms
from traceview.traces.facts.ranges.paths import UNATTRIBUTED, Paths, by_pattern, number_paths
from traceview.traces.trace import Trace, fact

__all__ = ["UNATTRIBUTED"]

# aten::mm, seq = 12, op_id = 34, sizes = [[4096, 2048], [2048, 1024]], input_op_ids = [(3,0), …]
_ARGUMENTS = re.compile(r"(?:, (?:seq|op_id) = \d+|, (?:sizes|input_op_ids) = \[[\[\](),\d -]*\])+")
# Digits between letters belong to a word: h2d, all2all.
_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+|\d+(?![A-Za-z\d])")
_AUTOGRAD = "pt_autograd"


@record
class RangeTree:
    """Ranges with a duration, sorted by (thread, start, −end). `row` is their row in ranges.

    `nesting` nests the ranges of each thread; `parent` is that of the tree, in which ranges that
    torch's autograd and NVIDIA's libraries open on threads of their own are `lent` to the range of
    the main thread.

    `path` is the row of each in `paths`, the same for all instances of a range. `path_pattern` is
    the row of each path in `patterns`: paths that differ in numbers only, such as the steps of a
    series, share a pattern. `processes` has one entry per row of ranges, of the tree or not.
    """

    nesting: Nesting
    parent: RowNumbers
    lent: Mask
    row: RowNumbers
    processes: Array
    path: RowNumbers
    paths: Paths
    path_pattern: RowNumbers
    patterns: Paths

    @cached_property
    def of_table(self) -> RowNumbers | slice:
        """Index that takes the values of these ranges from a column of `ranges`.

        A slice where possible, which copies nothing.
        """
        return _as_slice(self.row)

    @property
    def process(self) -> Array:
        """Process of each range, computed on every access."""
        return picked(self.processes, self.of_table)

    def process_of(self, rows: Array) -> Array:
        """Process of some rows of the tree."""
        return picked(self.processes, picked(self.row, rows))

    def pattern_of_paths(self, path: Array) -> Array:
        """Pattern of each path, −1 for none (−1)."""
        if not len(self.path_pattern):
            return path
        return np.where(path >= 0, self.path_pattern[path], -1)

    def path_of_ranges(self, row: Array) -> Array:
        """Path of each row of the tree, −1 for none (−1)."""
        if not len(self.path):
            return np.full(len(row), -1, np.int32)
        return np.where(row >= 0, self.path[row], -1)

    def own_or_inherited(self, value: RowNumbers) -> RowNumbers:
        """The value of each range, or of its nearest ancestor if its own is negative."""
        return inherited(value, self.parent)

    def around(self, mine: Mask) -> Mask:
        """True for the ranges of the mask `mine` and all their ancestors."""
        return with_ancestors(self.parent, mine)


def pattern_of(text: str) -> str:
    """A range's name or path with numbers as #, the same for all steps of a series.

    For an operator of torch only the name counts, without the arguments that emit_nvtx adds.
    """
    return _NUMBER.sub("#", _ARGUMENTS.sub("", text))


def patterns_of(texts: Sequence[str]) -> list[str]:
    """`pattern_of` of each text; all at once if none contains a NUL."""
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        return [pattern_of(text) for text in texts]
    if not joined.isascii():
        return pattern_of(joined).split("\0")
    content = np.frombuffer(_ARGUMENTS.sub("", joined).encode(), np.uint8)
    marked, size = np.empty_like(content), c_int64()
    library.call("traceview_mark_numbers", content, len(content), marked, size)
    return marked[: size.value].tobytes().decode().split("\0")


@fact
def range_tree(trace: Trace) -> RangeTree:
    """The tree of all push/pop and start/end ranges. One that never ended lasts to the end."""
    ranges = trace.recorded("ranges")
    rows, nesting = _nested(trace)
    parent = _cross_thread_parents(trace, nesting, rows)
    names = ranges.texts("name").take(_as_slice(rows))
    path, paths = number_paths(parent, names)
    forms = range_name_forms(trace)
    of_forms = Texts.of(patterns_of(forms.examples))
    named = Texts(of_forms.codes[forms.form], of_forms.values)
    path_pattern, patterns = by_pattern(paths, named)
    tree = RangeTree(
        nesting,
        parent,
        constant(False, len(rows), bool),
        rows,
        ranges["process"],
        path,
        paths,
        path_pattern,
        patterns,
    )
    if parent is nesting.parent:
        return tree
    lent = np.where(parent != nesting.parent, 1, np.where(parent < 0, 0, -1)).astype(np.int32)
    return replace(tree, lent=tree.own_or_inherited(lent) == 1)


def _as_slice(rows: RowNumbers) -> RowNumbers | slice:
    """The distinct rows, as a slice if they are the first rows of the table in order."""
    leading = not len(rows) or (int(rows.max()) == len(rows) - 1 and groups.in_order(rows))
    return slice(len(rows)) if leading else rows


def _nested(trace: Trace) -> tuple[RowNumbers, Nesting]:
    """The rows of the ranges with a duration, and how they nest."""
    ranges = trace.recorded("ranges")
    thread, start, end = ranges["thread"], ranges["start_ns"], ranges["end_ns"]
    lasting = ~ranges.texts("kind").isin(["mark"])
    if (lasting & (end == NULL)).any():
        # After all events, near enough to keep (thread, time) keys within 64 bits.
        timed = ("ranges", "api_calls", "kernels", "copies", "sets", "graph_launches")
        tables = [trace.recorded(name) for name in timed]
        times = (table[edge] for table in tables for edge in ("start_ns", "end_ns"))
        end = np.where(end == NULL, max(int(time.max(initial=0)) for time in times) + 1, end)
    lasting &= end > start
    count = int(np.count_nonzero(lasting))
    if lasting[:count].all():
        # nsys's reader puts marks last, so that the tree's columns are slices of the table's.
        rows = np.arange(count, dtype=np.int32)
        thread, start, end = thread[:count], start[:count], end[:count]
    else:
        rows = row_numbers(np.flatnonzero(lasting))
        thread, start, end = picked(thread, rows), start[rows], end[rows]
    if not in_nesting_order(thread, start, end):
        order = np.lexsort((-end, start, thread))
        rows, thread, start, end = rows[order], thread[order], start[order], end[order]
    return rows, nest(thread, start, end)


def _cross_thread_parents(trace: Trace, nesting: Nesting, rows: RowNumbers) -> RowNumbers:
    """Parents by nesting; for ranges opened on other threads, ranges of the main thread."""
    if trace.strict or not len(rows):
        return nesting.parent
    outermost = np.flatnonzero(nesting.parent < 0)
    main = main_threads(trace)[trace.recorded("ranges")["process"][rows[outermost]]]
    guests = nesting.track[outermost] != main
    if not guests.any():
        return nesting.parent
    # Ranges of NVIDIA's libraries, and those on threads of torch's autograd.
    domains = trace.recorded("ranges").texts("domain").take(rows[outermost])
    autograd = trace.threads.texts("name").matching(lambda name: name.startswith(_AUTOGRAD))
    libraries = domains.isin(library_domains(domains.values))
    guests &= libraries | autograd[nesting.track[outermost]]
    parent, guest_rows = nesting.parent.copy(), outermost[guests]
    host = nesting.innermost(main[guests], nesting.start[guest_rows])
    while (
        over := (host >= 0) & (nesting.end[np.maximum(host, 0)] < nesting.end[guest_rows])
    ).any():
        host[over] = nesting.parent[host[over]]
    parent[guest_rows] = host
    return parent


def main_threads(trace: Trace) -> Array:
    """Row of the main thread of each process, −1 if the trace does not have it."""
    threads = trace.threads
    main = np.full(len(trace.processes), -1, np.int64)
    rows = np.flatnonzero(threads["thread_id"] == trace.processes["process_id"][threads["process"]])
    main[threads["process"][rows]] = rows
    return main


@record
class Attribution:
    """The range of each (thread, time) as a row of the tree (−1: none).

    `inferred` is True where the thread itself had no range of the program open, and the range is
    the one open on another thread of the process: autograd and worker threads launch for the main
    thread.
    """

    range: RowNumbers
    inferred: Mask

    def path(self, tree: RangeTree) -> RowNumbers:
        """Path of each range, −1 where there is none."""
        return tree.path_of_ranges(self.range)


def attribute(trace: Trace, thread: Array, process: Array, time: Integers) -> Attribution:
    """The range open at each (thread, time), as in `open_ranges`, and where it is inferred."""
    tree = range_tree(trace)
    row, without = _opened(trace, thread, process, time)
    if not len(tree.row):
        return Attribution(row, constant(False, len(row), bool))
    inferred = picked(tree.lent, row) & (row >= 0)
    inferred[without] = row[without] >= 0
    return Attribution(row, inferred)


def open_ranges(trace: Trace, thread: Array, process: Array, time: Integers) -> RowNumbers:
    """The innermost range at each (thread, time), −1 where there is none.

    A thread without an open range gets that of the process's main thread, or, if that has none
    either, that of the only other thread with one. If several have one, it gets none. In a strict
    trace it never gets any.
    """
    return _opened(trace, thread, process, time)[0]


def _opened(
    trace: Trace, thread: Array, process: Array, time: Integers
) -> tuple[RowNumbers, Integers]:
    """The open ranges, and the indices of the times at which the thread itself has none."""
    tree = range_tree(trace)
    row = tree.nesting.innermost(thread, time)
    without = np.flatnonzero(row < 0)
    if len(tree.row) and len(without):
        of_process, lends = trace.threads["process"], np.zeros(len(trace.threads), bool)
        lends[np.flatnonzero(np.diff(tree.nesting.bounds))] = True
        lenders = np.bincount(of_process[lends], minlength=len(trace.processes))
        # Threads of processes in which another thread has ranges; for −1, no thread, too.
        beside_lenders = np.append(lenders[of_process] > lends, True)
        unsure = without[picked(beside_lenders, picked(thread, without))]
        row[unsure] = of_main_thread(trace, None, process[unsure], time[unsure])
    return row, without


def of_main_thread(
    trace: Trace, value: RowNumbers | None, process: Array, time: Integers
) -> RowNumbers:
    """The value of the range open on the main thread of a process, else on its only other thread.

    `value` has an entry for each range in the tree; negative ones count as not open. Without it,
    the value of a range is its row. The result is −1 where nothing is open, where several other
    threads have a range open, and in a strict trace.
    """
    result = np.full(len(time), -1, np.int32)
    tree = range_tree(trace)
    if trace.strict:
        return result
    main = main_threads(trace)
    if value is None:
        lenders = np.flatnonzero(np.diff(tree.nesting.bounds))
    else:
        lenders = groups.different(tree.nesting.track[value >= 0])
    of_process = groups.rows_of(trace.threads["process"][lenders])
    for number, rows in groups.rows_of(process).items():
        on_main = only = np.full(len(rows), -1, np.int32)
        having = np.zeros(len(rows), np.int64)
        for thread in lenders[of_process.get(number, groups.NO_ROWS)].tolist():
            found = tree.nesting.innermost(np.full(len(rows), thread), time[rows])
            open_value = found if value is None else np.where(found >= 0, value[found], -1)
            having += open_value >= 0
            only = np.where(open_value >= 0, open_value, only)
            if thread == main[number]:
                on_main = open_value
        result[rows] = np.where(on_main >= 0, on_main, np.where(having == 1, only, -1))
    return result


@fact
def attributed_calls(trace: Trace) -> Attribution:
    """The range of each API call: the one open when the call was made."""
    calls = trace.recorded("api_calls")
    return attribute(trace, calls["thread"], calls["process"], calls["start_ns"])


@fact
def attributed_operations(trace: Trace) -> Attribution:
    """The range of each operation: that of its launch call."""
    ops, calls = operations(trace), attributed_calls(trace)
    if not len(calls.range):
        return Attribution(np.full(len(ops), -1, np.int32), np.zeros(len(ops), bool))
    ranges = np.where(ops.launched, calls.range[ops.call], -1)
    return Attribution(ranges, calls.inferred[ops.call] & ops.launched)
