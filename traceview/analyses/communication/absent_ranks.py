"""Waiting for ranks that are not in the recording, by the fastest equal collective.

Of collectives of one kind and size the fastest is the one that waited least. What the others take
longer is waiting for ranks that arrive later, or transfers that others slow down: the recordings of
the other ranks tell which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.analyses.communication.pairing import Waiting
from traceview.facts.collectives.transfers import Transfers
from traceview.tables import Integers
from traceview.trace import Trace

_LEAST_EQUAL = 4
_RANK_FILE = re.compile(r"\.rank\d+\.")


@dataclass(frozen=True)
class BeyondFastest:
    """Collectives whose other ranks are not recorded: `rows` of transfers.

    `beyond_ns` is what each takes longer than the fastest of its kind, size and communicator; 0
    where fewer than four are alike.
    """

    rows: Integers
    beyond_ns: Integers

    @property
    def total_ns(self) -> int:
        return int(self.beyond_ns.sum())


def beyond_fastest(moved: Transfers, waits: Waiting, rows: Integers) -> BeyondFastest:
    """Those of these transfers that no recorded rank shares, against the fastest of their kind."""
    alone = rows[moved.is_collective[rows] & (waits.wait_ns[rows] < 0) & (moved.ranks[rows] != 1)]
    if not len(alone):
        return BeyondFastest(alone, np.zeros(0, np.int64))
    number = np.unique(moved.communicator[alone], return_inverse=True)[1].astype(np.int64)
    size = np.unique(moved.bytes[alone], return_inverse=True)[1].astype(np.int64)
    by = groups.group(moved.kind[alone], size, number)
    duration = moved.duration_ns[alone]
    fastest = np.full(len(by.first), np.iinfo(np.int64).max)
    np.minimum.at(fastest, by.ids, duration)
    enough = groups.count(by)[by.ids] >= _LEAST_EQUAL
    return BeyondFastest(alone, np.where(enough, duration - fastest[by.ids], 0))


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
