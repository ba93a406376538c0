"""Inclusive totals by range: work counts under every range around it."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.ranges.ranges import RangeTree, attributed_operations
from traceview.facts.ranges.selection import selected_operations, selected_ranges
from traceview.tables import Integers, Mask, RowNumbers
from traceview.trace import Trace


def inclusive(
    tree: RangeTree, path: RowNumbers, duration_ns: Integers
) -> tuple[Integers, Integers]:
    """Calls and time of each path and all paths below it.

    `path` and `duration_ns` have one entry per launch; path is -1 outside all ranges.
    """
    paths = tree.paths
    calls = groups.added(path, np.ones(len(path), np.int64), len(paths))
    total = groups.added(path, duration_ns, len(paths))
    for numbers in (calls, total):
        paths.add_up(numbers)
    return calls, total


def entered_ranges(trace: Trace, tree: RangeTree) -> Mask:
    """True for selected ranges and for ranges around selected work."""
    chosen = selected_ranges(trace)
    ranges = attributed_operations(trace).range[selected_operations(trace)]
    has_work = np.zeros(len(chosen), bool)
    has_work[ranges[ranges >= 0]] = True
    return chosen | tree.around(has_work)
