"""Totals by range that count work under every range around it."""

from __future__ import annotations

import numpy as np

from traceview.facts.ranges.ranges import RangeTree, attributed_operations
from traceview.facts.ranges.selection import selected, selected_operations
from traceview.tables import Integers, Mask, RowNumbers
from traceview.trace import Trace


def inclusive(tree: RangeTree, path: RowNumbers, took: Integers) -> tuple[Integers, Integers]:
    """Calls and time of each path and all below it, added up from the innermost level."""
    within = path >= 0
    paths = tree.paths
    calls = np.bincount(path[within], minlength=len(paths)).astype(np.int64)
    total = np.zeros(len(paths), np.int64)
    np.add.at(total, path[within], took[within])
    for depth in range(int(paths.depth.max(initial=0)), 0, -1):
        mine = np.flatnonzero(paths.depth == depth)
        np.add.at(calls, paths.parent[mine], calls[mine])
        np.add.at(total, paths.parent[mine], total[mine])
    return calls, total


def entered(trace: Trace, tree: RangeTree) -> Mask:
    """True for the ranges that are selected, and for those around selected work."""
    mine = selected(trace, tree.process, tree.nesting.start)
    found = attributed_operations(trace).range[selected_operations(trace)]
    worked = np.zeros(len(mine), bool)
    worked[found[found >= 0]] = True
    return mine | tree.around(worked)
