"""The tables of `steps`, column by column, and that of PyTorch operators."""

from __future__ import annotations

from operator import itemgetter, methodcaller

import numpy as np

from traceview import groups
from traceview.analyses.base import Keep, TableSpec
from traceview.facts.operations.hosts import HOST
from traceview.facts.ranges.ranges import RangeTree, range_tree
from traceview.facts.ranges.selection import selected
from traceview.tables import Column, Integers, Mask, RowNumbers, Table, Texts
from traceview.trace import Trace
from traceview.trace.schema.ranges import OPERATORS as DOMAIN

SERIES = TableSpec(
    "series",
    "one row per series of steps (ranges of one path pattern on one thread), or per loop "
    "where its loops differ",
    (
        Column(
            "series",
            "text",
            "path pattern of the ranges, with # for numbers; numbered where loops differ",
        ),
        Column("steps", "int64", "number of steps"),
        Column("warm_up_steps", "int64", "steps at the beginning that take longer than later ones"),
        Column("outliers", "int64", "later steps that take longer than the limit"),
        Column("median_ns", "int64", "median time per step after warm-up"),
        Column("p90_ns", "int64", "90th percentile of it", nullable=True),
        Column("limit_ns", "int64", "a step that takes longer is warm-up or an outlier"),
        Column(
            "gpu_busy_pct",
            "float64",
            "percentage of the time of steps after warm-up",
            nullable=True,
        ),
        Column(
            "sync_wait_pct",
            "float64",
            ("CPU time in synchronizations, as a percentage of these steps"),
        ),
        Column(
            "excess_ns",
            "int64",
            "time of outliers beyond the median, including one-time idle time",
        ),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "series",
        "host_id",
        "process_id",
        "steps",
        "warm_up_steps",
        "median_ns",
        "p90_ns",
        "gpu_busy_pct",
        "outliers",
    ),
)
STEPS = TableSpec(
    "steps",
    "one row per step, outliers first, then in order of time",
    (
        Column(
            "step",
            "text",
            (
                "its range as --range takes it: the name, or where names repeat the path with "
                "a number"
            ),
        ),
        Column(
            "kind",
            "text",
            "warm-up, outlier, steady; or without-gpu-work in a loop that has GPU work",
        ),
        Column(
            "duration_ns",
            "int64",
            "from the end of the previous step's GPU work to the end of its own",
        ),
        Column(
            "why", "text", "parts that make it longer than the median", nullable=True, prose=True
        ),
        Column("gpu_busy_ns", "int64", "GPU busy time", nullable=True),
        Column("gpu_idle_ns", "int64", "GPU idle time", nullable=True),
        Column(
            "sync_wait_ns",
            "int64",
            ("CPU time in synchronizations and blocking copies in the range"),
        ),
        Column("launches", "int64", "launch calls"),
        Column("operations", "int64", "GPU operations launched in it"),
        Column("lead_ns", "int64", "end of its GPU work − end of its range", nullable=True),
        Column("cpu_ns", "int64", "duration of its range"),
        Column("cpu_start_ns", "int64", "start of its range"),
        Column("series", "text", "series it belongs to"),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "step",
        "host_id",
        "kind",
        "duration_ns",
        "why",
        "gpu_busy_ns",
        "gpu_idle_ns",
        "sync_wait_ns",
        "lead_ns",
    ),
    adds=("launches", "operations"),
)
PART_TABLE = TableSpec(
    "parts",
    "time of each step by part, in chronological order",
    (
        Column("step", "text", "as in steps"),
        Column(
            "part", "text", "GPU work, or idle time by cause; CPU parts for a step without GPU work"
        ),
        Column("part_ns", "int64", "time of the part; with several GPUs, their mean"),
    ),
    brief=("step", "part", "part_ns"),
    detail=True,
    adds=("part_ns",),
    keep=Keep("part_ns"),
)


OPERATORS = TableSpec(
    "operators",
    "one row per PyTorch operator, most CPU time of its own first",
    (
        Column("operator", "text", "name of the operator"),
        Column(
            "calls", "int64", "number of calls; one inside a call of the same name is part of it"
        ),
        Column("own_ns", "int64", "CPU time in it, outside the operators and ranges inside it"),
        Column("total_ns", "int64", "CPU time from start to end of these calls"),
        Column("share_pct", "float64", "own_ns as a percentage of that of all operators"),
    ),
    brief=("operator", "calls", "own_ns", "total_ns", "share_pct"),
    adds=("calls", "own_ns", "share_pct"),
    rare=True,
)


def operator_table(trace: Trace) -> Table:
    """The selected operators of all threads. Those that never ended count until the last event."""
    ranges = trace.recorded("ranges")
    chosen = ranges.texts("domain").isin([DOMAIN])
    chosen &= selected(trace, ranges["process"], ranges["start_ns"])
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return Table.empty(OPERATORS.columns)
    names = _without_shapes(ranges.texts("name"))
    own, total, inner = _times_ns(range_tree(trace), names, len(ranges))
    by = groups.group(names.codes[rows])
    own_ns = groups.sums(by, own[rows])
    table = Table(
        OPERATORS.columns,
        {
            "operator": names.take(rows[by.first]),
            "calls": groups.count(by, ~inner[rows]),
            "own_ns": own_ns,
            "total_ns": groups.sums(by, total[rows]),
            "share_pct": 100.0 * own_ns / max(int(own_ns.sum()), 1),
        },
    )
    return table.take(groups.most_first(own_ns))


def _without_shapes(names: Texts) -> Texts:
    parted = map(methodcaller("partition", ", sizes = "), names.values.tolist())
    return names.map(list(map(itemgetter(0), parted)))


def _times_ns(tree: RangeTree, names: Texts, count: int) -> tuple[Integers, Integers, Mask]:
    """Own time, total time and whether inside a range of the same name, per row of ranges.

    The total time of an inside range is 0.
    """
    own, total = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inner = np.zeros(count, bool)
    own[tree.row] = tree.nesting.own_ns
    inner[tree.row] = _inside_its_like(tree, names.codes[tree.row])
    total[tree.row] = tree.nesting.end - tree.nesting.start
    total[inner] = 0
    return own, total, inner


def _inside_its_like(tree: RangeTree, name: RowNumbers) -> Mask:
    """True for ranges inside another range of the same name on their thread."""
    parent = tree.nesting.parent
    result = np.zeros(len(parent), bool)
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    # One pass per level of nesting.
    while len(rows):
        result[rows[name[above] == name[rows]]] = True
        above = parent[above]
        deeper = above >= 0
        rows, above = rows[deeper], above[deeper]
    return result
