"""Exclusive time: at each instant of a window at most one of the intervals that cover it."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.intervals import Intervals
from traceview.tables import Array, Integers


def exclusive_ns(start: Integers, end: Integers, precedence: Array, window: Intervals) -> Integers:
    """Time of each interval that belongs to it alone, in ns; the times sum to their union's.

    An instant belongs to the interval of least `precedence`, among equals to the one that started
    first, then to the first row. Rows are in order of start.
    """
    own, free = np.zeros(len(start), np.int64), window
    for level in groups.different(precedence).tolist():
        rows = np.flatnonzero((precedence == level) & (end > start))
        if not len(rows):
            continue
        # Earlier intervals cover this one up to their latest end so far.
        reach = np.maximum.accumulate(end[rows])
        begin = np.maximum(start[rows], np.append(start[rows[:1]], reach[:-1]))
        own[rows] = intervals.overlap(free, np.minimum(begin, end[rows]), end[rows])
        free = without(free, intervals.union(start[rows], end[rows]))
    return own


def without(window: Intervals, claimed: Intervals) -> Intervals:
    """The part of the union `window` that the union `claimed` does not cover."""
    if not len(window.start) or not len(claimed.start):
        return window
    first, last = int(window.start[0]), int(window.end[-1])
    return intervals.intersection(window, intervals.complement(claimed, first, last))
