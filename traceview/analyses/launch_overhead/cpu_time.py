"""Tables of CPU time: every function of the CUDA API, and the ranges of the program."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.base import TableSpec
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.ranges.ranges import attributed_calls, range_tree
from traceview.facts.ranges.selection import selected_calls, selected_ranges
from traceview.tables import Array, Column, Integers, Table, Texts, picked, row_numbers, unbroken
from traceview.trace import Trace

_DOES = {
    CallKind.OTHER: "other",
    CallKind.LAUNCH: "launch",
    CallKind.SYNCHRONIZE: "synchronize",
    CallKind.COPY: "copy",
    CallKind.COPY_ASYNC: "copy",
    CallKind.ALLOCATE: "allocate",
    CallKind.LOAD: "load code",
    CallKind.LOOK_UP: "look up code",
    CallKind.GRAPH: "prepare graph",
}
API = TableSpec(
    "api",
    "one row per function of the CUDA runtime and driver, most CPU time first; what a thread waits "
    "for in it counts",
    (
        Column("api", "text", "runtime or driver call"),
        Column(
            "does",
            "text",
            "launch, synchronize, copy, allocate, load code, look up code, prepare graph or other",
        ),
        Column("calls", "int64", "number of calls"),
        Column("total_ns", "int64", "CPU time in it, over all threads"),
        Column("median_ns", "int64", "median per call"),
        Column("max_ns", "int64", "longest call"),
        Column("share_pct", "float64", "percentage of the CPU time in all CUDA calls"),
    ),
    brief=("api", "does", "calls", "total_ns", "share_pct", "median_ns", "max_ns"),
    adds=("calls", "total_ns", "share_pct"),
)
RANGES = TableSpec(
    "ranges",
    "one row per path pattern of ranges, most CPU time of its own first",
    (
        Column("range_path", "text", "path of the range, with # for numbers"),
        Column("instances", "int64", "number of ranges"),
        Column("cpu_ns", "int64", "time from start to end, over all instances"),
        Column("own_ns", "int64", "part of it in no inner range of the same thread"),
        Column("cuda_ns", "int64", "time of CUDA calls made in no inner range"),
        Column("launches", "int64", "launch calls made in no inner range"),
    ),
    brief=("range_path", "instances", "own_ns", "cpu_ns", "cuda_ns", "launches"),
    adds=("instances", "own_ns", "cuda_ns", "launches"),
    rare=True,
)


def api_table(trace: Trace) -> Table:
    """The selected calls of every function."""
    calls, rows = api_calls(trace), unbroken(np.flatnonzero(selected_calls(trace)))
    names = trace.api_calls.texts("name").take(rows)
    each = groups.group(names.codes)
    figures = groups.stats(each, calls.duration_ns[rows])
    does = [_DOES[CallKind(kind)] for kind in calls.does[rows][each.first].tolist()]
    table = Table(
        API.columns,
        {
            "api": names.take(each.first),
            "does": Texts.of(does),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "max_ns": figures.most,
            "share_pct": 100.0 * figures.total / max(int(figures.total.sum()), 1),
        },
    )
    return table.take(groups.most_first(figures.total))


def range_table(trace: Trace) -> Table:
    """The selected ranges by path pattern. Those that never ended count until the last event."""
    tree, size = range_tree(trace), len(range_tree(trace).patterns)
    chosen = selected_ranges(trace)
    pattern = picked(np.append(tree.path_pattern, np.int32(size)), tree.path)
    if trace.selection:
        # Ranges that are not selected are counted behind the last pattern.
        pattern[~chosen] = size
    cuda, launches = _calls_inside(trace, pattern, size)
    duration, own = tree.nesting.sums(pattern, size + 1)
    instances = groups.frequencies(pattern, size + 1)
    rows = np.flatnonzero(instances[:size])
    table = Table(
        RANGES.columns,
        {
            "range_path": tree.patterns.texts(row_numbers(rows)),
            "instances": instances[rows],
            "cpu_ns": duration[rows],
            "own_ns": own[rows],
            "cuda_ns": cuda[rows],
            "launches": launches[rows],
        },
    )
    return table.take(groups.most_first(own[rows]))


def _calls_inside(trace: Trace, pattern: Array, size: int) -> tuple[Integers, Integers]:
    """CUDA time and launch calls on each pattern's own threads, by innermost range.

    `pattern` has the pattern of each range; `size`, the number of patterns, for ranges that do not
    count.
    """
    calls, inside = api_calls(trace), attributed_calls(trace)
    within = unbroken(np.flatnonzero((inside.range >= 0) & ~inside.inferred))
    of_calls = picked(pattern, picked(inside.range, within))
    launching = picked(calls.does, within) == CallKind.LAUNCH
    cuda = groups.added(of_calls, picked(calls.duration_ns, within), size + 1)
    launches = groups.added(of_calls, launching, size + 1)
    return cuda, launches
