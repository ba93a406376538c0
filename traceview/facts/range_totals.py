"""Totals by range that count work under every range around it."""

from __future__ import annotations

import numpy as np

from traceview.facts.ranges import RangeTree, attributed_operations
from traceview.facts.selection import selected, selected_operations
from traceview.tables import Integers, Mask
from traceview.trace import Trace


def inclusive(tree: RangeTree, path: Integers, took: Integers) -> tuple[Integers, Integers]:
    """Calls and time of each path and all below it, added up from the innermost level."""
    within = path >= 0
    calls = np.bincount(path[within], minlength=len(tree.path_text)).astype(np.int64)
    total = np.zeros(len(tree.path_text), np.int64)
    np.add.at(total, path[within], took[within])
    level = np.zeros(len(tree.path_text), np.int64)
    level[tree.path] = tree.depth
    for depth in range(int(level.max(initial=0)), 0, -1):
        mine = np.flatnonzero(level == depth)
        np.add.at(calls, tree.path_parent[mine], calls[mine])
        np.add.at(total, tree.path_parent[mine], total[mine])
    return calls, total


def entered(trace: Trace, tree: RangeTree) -> Mask:
    """True for the ranges that are selected, and for those around selected work."""
    mine = selected(trace, tree.process, tree.nesting.start)
    found = attributed_operations(trace).range[selected_operations(trace)]
    row = np.unique(found[found >= 0])
    while len(row):
        mine[row] = True
        above = tree.parent[row]
        row = np.unique(above[above >= 0])
    return mine
