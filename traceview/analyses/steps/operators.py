"""CPU time of PyTorch operators, by operator."""

from __future__ import annotations

from operator import itemgetter, methodcaller

import numpy as np

from traceview import groups
from traceview.analyses.base import TableSpec
from traceview.facts.ranges.ranges import RangeTree, range_tree
from traceview.facts.ranges.selection import selected
from traceview.tables import Column, Integers, Mask, RowNumbers, Table, Texts
from traceview.trace import Trace
from traceview.trace.schema.ranges import OPERATORS as DOMAIN

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
