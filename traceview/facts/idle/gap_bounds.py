"""Where each idle gap of a device begins and ends, and the operations around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import operations
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Edges:
    """One row an idle gap, by device and start.

    `before` is the operation that ended last before it, `after` the one that ended it.
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def idle_ns(self) -> Integers:
        return self.end_ns - self.start_ns


@fact
def edges(trace: Trace) -> Edges:
    """All idle gaps of all devices, whoever worked there."""
    done = operations(trace)
    parts = [
        _between(done.start_ns, done.end_ns, done.device == d)
        for d in groups.different(done.device)
    ]
    before = np.concatenate([part[0] for part in parts] or [np.zeros(0, np.int64)])
    after = np.concatenate([part[1] for part in parts] or [np.zeros(0, np.int64)])
    return Edges(done.device[after], done.end_ns[before], done.start_ns[after], before, after)


def _between(start: Integers, end: Integers, mine: Mask) -> tuple[Integers, Integers]:
    """The operation that ended last before each gap of one device, and the one that ends it."""
    rows = np.flatnonzero(mine & (end > start))
    if not len(rows):
        return rows, rows
    latest = reaching(end[rows])
    opens = np.flatnonzero(start[rows][1:] > end[rows][latest][:-1])
    return rows[latest[opens]], rows[opens + 1]


def reaching(end: Integers) -> Integers:
    """For each place, the one up to there that ends last."""
    latest = end == np.maximum.accumulate(end)
    return np.maximum.accumulate(np.where(latest, np.arange(len(end)), 0))
