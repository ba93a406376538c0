"""Where each idle gap of a device begins and ends, and the operations around it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import operations
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers, picked
from traceview.trace import Trace, fact_without_ranges


class IdleTime(Timed):
    """Base of tables with one row per idle gap."""

    @cached_property
    def idle_ns(self) -> Integers:
        return self.duration_ns

    def __len__(self) -> int:
        return len(self.start_ns)


@record
class GapBounds(IdleTime):
    """Idle gaps, one row per gap, by device and start.

    `before` is the operation that ended last before the gap, `after` the one that ended the gap.
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers


@fact_without_ranges
def gap_bounds(trace: Trace) -> GapBounds:
    """All idle gaps of all devices."""
    ops = operations(trace)
    return find_gaps(ops.device, ops.start_ns, ops.end_ns)


def find_gaps(device: Array, start: Integers, end: Integers) -> GapBounds:
    """The idle gaps between intervals of work, given in order of start."""
    pairs = [_around_gaps(start, end, rows) for rows in groups.rows_of(device).values()]
    none = np.zeros(0, np.int64)
    before, after = (np.concatenate([none, *(pair[side] for pair in pairs)]) for side in (0, 1))
    return GapBounds(device[after], end[before], start[after], before, after)


def _around_gaps(
    start: Integers, end: Integers, on_device: RowNumbers
) -> tuple[RowNumbers, RowNumbers]:
    """Rows of the work before and after each gap of one device."""
    rows = on_device[picked(end, on_device) > picked(start, on_device)]
    if not len(rows):
        return rows, rows
    start, end = picked(start, rows), picked(end, rows)
    latest = latest_so_far(end)
    opens = np.flatnonzero(start[1:] > picked(end, latest)[:-1])
    return rows[latest[opens]], rows[opens + 1]


def latest_so_far(end: Integers) -> Integers:
    """For each index i, the index of the greatest end among 0 to i."""
    latest = end == np.maximum.accumulate(end)
    return np.maximum.accumulate(np.where(latest, np.arange(len(end)), 0))
