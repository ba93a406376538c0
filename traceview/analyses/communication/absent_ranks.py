"""Waiting for ranks that are not in the recording, by the fastest equal collective.

Of collectives of one kind and size the fastest is the one that waited least. What the others take
longer is waiting for ranks that arrive later, or transfers that others slow down: the recordings of
the other ranks tell which. Where sizes are unknown, those at one place of each step are alike.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.analyses.communication.pairing import Waiting
from traceview.facts.collectives.transfers import Transfers
from traceview.facts.steps.steps import step_of_operations
from traceview.groups import Groups
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace

_LEAST_EQUAL = 4
_RANK_FILE = re.compile(r"\.rank\d+\.")


@record
class BeyondFastest:
    """Collectives whose other ranks are not recorded: `rows` of transfers.

    `beyond_ns` is what each takes longer than the fastest of those alike, 0 where fewer than four
    are. `by_size` is False where not all sizes are known.
    """

    rows: Integers
    beyond_ns: Integers
    by_size: bool

    @property
    def total_ns(self) -> int:
        return int(self.beyond_ns.sum())


def beyond_fastest(trace: Trace, moved: Transfers, waits: Waiting, rows: Integers) -> BeyondFastest:
    """Those of these transfers that no recorded rank shares, against the fastest of their kind."""
    alone = rows[moved.is_collective[rows] & (waits.wait_ns[rows] < 0) & (moved.ranks[rows] != 1)]
    if not len(alone):
        return BeyondFastest(alone, np.zeros(0, np.int64), True)
    number = np.unique(moved.communicator[alone], return_inverse=True)[1].astype(np.int64)
    size, step = moved.bytes[alone], step_of_operations(trace)[moved.operation[alone]]
    unknown = size < 0
    in_step = groups.group(moved.kind[alone], number, np.where(unknown, step, 0))
    place = np.where(unknown, _place(in_step), 0)
    of_step = np.where(unknown, groups.count(in_step)[in_step.ids], 0)
    size = np.unique(size, return_inverse=True)[1].astype(np.int64)
    by = groups.group(moved.kind[alone], number, size, of_step, place)
    duration = moved.duration_ns[alone]
    fastest = np.full(len(by.first), np.iinfo(np.int64).max)
    np.minimum.at(fastest, by.ids, duration)
    enough = (groups.count(by)[by.ids] >= _LEAST_EQUAL) & ~(unknown & (step < 0))
    beyond_ns = np.where(enough, duration - fastest[by.ids], 0)
    return BeyondFastest(alone, beyond_ns, not unknown.any())


def _place(by: Groups) -> Integers:
    """How many rows of its group come before each row."""
    order = np.argsort(by.ids, kind="stable")
    result = np.empty(len(order), np.int64)
    result[order] = np.arange(len(order)) - np.searchsorted(by.ids[order], by.ids[order])
    return result


def how_to_read_all(trace: Trace) -> str:
    """The remedy that shows the other ranks."""
    name = trace.path.rpartition("/")[2]
    if _RANK_FILE.search(name):
        pattern = _RANK_FILE.sub(".rank*.", name)
        return f"Read all ranks together: traceview report {pattern}"
    return (
        "Record every rank (traceview record under torchrun, or with --nproc) and read them "
        "together: traceview report FILE FILE …"
    )
