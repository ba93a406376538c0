"""Waiting for ranks that are not in the recording, by the fastest equal collective.

The fastest collective of a kind and size is the one that waited least. The excess time of the
others is waiting for ranks that arrive later, or slowdown by concurrent transfers: the recordings
of the other ranks tell which. Where sizes are unknown, collectives at the same place of each step
are taken to be equal.
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

    `beyond_ns` is the time of each beyond the fastest equal collective, 0 where fewer than four are
    equal. `by_size` is False where not all sizes are known.
    """

    rows: Integers
    beyond_ns: Integers
    by_size: bool

    @property
    def total_ns(self) -> int:
        return int(self.beyond_ns.sum())


def beyond_fastest(trace: Trace, moved: Transfers, waits: Waiting, rows: Integers) -> BeyondFastest:
    """Transfers of `rows` that no other recorded rank shares, against the fastest equal one."""
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
    """The number of rows of the same group before each row."""
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
