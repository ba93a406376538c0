"""Collectives paired over the GPUs of a recording: who waited for whom, and why it was late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview import groups, intervals
from traceview.facts.collectives.fitting import CollectiveTimes
from traceview.facts.collectives.matching import MatchedRows, ends_together, matched_rows, waits_of
from traceview.facts.collectives.messages import SEND_RECEIVE
from traceview.facts.collectives.transfers import Transfers, transfers
from traceview.facts.operations.hosts import device_hosts
from traceview.facts.operations.operations import operations
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact


@record
class Waiting:
    """Waits in collectives, one entry per transfer.

    `wait_ns` is the wait for the last GPU to arrive, −1 for an unpaired transfer; `late_ns` the
    longest wait of another GPU for this one, 0 unless it arrived last. `extra_work_ns` and
    `extra_idle_ns` are how much longer than the mean of the others a GPU that arrived last was
    busy, and idle, since its previous collective. `communicator` is its number, −1 for none.
    """

    wait_ns: Integers
    late_ns: Integers
    extra_work_ns: Integers
    extra_idle_ns: Integers
    communicator: Integers
    devices: tuple[tuple[int, ...], ...]


@fact
def waiting(trace: Trace) -> Waiting:
    """Waits of the collectives of the selected work."""
    moved = transfers(trace)
    streams = communicators(trace, moved)
    late, work, idle = (np.zeros(len(moved), np.int64) for _ in range(3))
    wait, group_of = (np.full(len(moved), -1, np.int64) for _ in range(2))
    result = Waiting(wait, late, work, idle, group_of, tuple(each.members for each in streams))
    busy = _busy_without_transfers(trace, moved)
    for number, each in enumerate(streams):
        result.communicator[each.rows[each.rows >= 0]] = number
        _fill(result, moved, each, busy)
    return result


def communicators(trace: Trace, moved: Transfers) -> tuple[MatchedRows, ...]:
    """Streams of different GPUs whose collectives belong together; `rows` are rows of transfers."""
    rows = np.flatnonzero(moved.is_collective)
    if not len(rows):
        return ()
    times = CollectiveTimes(
        member=moved.device[rows],
        lane=moved.stream[rows],
        start_ns=moved.start_ns[rows],
        end_ns=moved.end_ns[rows],
        kind=moved.kind[rows],
        is_message=np.array([kind == SEND_RECEIVE for kind in moved.kinds])[moved.kind[rows]],
        direction=moved.sends[rows].astype(np.int64) - moved.receives[rows],
        bytes=np.full(len(rows), -1, np.int64),
        communicator=moved.communicator[rows],
        step=np.full(len(rows), -1, np.int64),
        clock=device_hosts(trace),
    )
    matched = matched_rows(times)
    return tuple(
        replace(each, rows=np.where(each.rows >= 0, rows[each.rows], -1)) for each in matched
    )


def _busy_without_transfers(trace: Trace, moved: Transfers) -> dict[int, Intervals]:
    """Union of all other operations of each device that takes part in transfers."""
    ops = operations(trace)
    other = np.ones(len(ops), bool)
    other[moved.operation] = False
    return {
        device: intervals.union(
            ops.start_ns[other & (ops.device == device)], ops.end_ns[other & (ops.device == device)]
        )
        for device in groups.different(moved.device).tolist()
    }


def _fill(result: Waiting, moved: Transfers, of: MatchedRows, busy: dict[int, Intervals]) -> None:
    """Write the waits of the collectives of one communicator into the arrays of the result."""
    rows, there = of.rows, of.rows >= 0
    together = np.ones(rows.shape[1], bool)
    if of.same_clock:
        together = ends_together(moved.end_ns[rows], there)
    waits = waits_of(moved.duration_ns[rows], there, together)
    known = waits.last >= 0
    rows, there, wait = rows[:, known], there[:, known], waits.wait_ns[:, known]
    if not rows.size:
        return
    result.wait_ns[rows[there]] = wait[there]
    last, at = waits.last[known], np.arange(rows.shape[1])
    late = rows[last, at]
    result.late_ns[late] = waits.late_ns[known]
    work, idle = _since_the_one_before(moved, rows, there, of.members, busy)
    others = np.maximum(there.sum(axis=0) - 1, 1)
    for values, extra in ((work, result.extra_work_ns), (idle, result.extra_idle_ns)):
        mean = (values.sum(axis=0) - values[last, at]) // others
        extra[late] = values[last, at] - mean


def _since_the_one_before(
    moved: Transfers,
    rows: Integers,
    there: Mask,
    devices: tuple[int, ...],
    busy: dict[int, Intervals],
) -> tuple[Integers, Integers]:
    """Busy and idle time of each GPU between the previous collective and this; 0 for the first."""
    work, idle = (np.zeros(rows.shape, np.int64) for _ in range(2))
    for place, device in enumerate(devices):
        own = rows[place, there[place]]
        start = moved.start_ns[own]
        before = np.concatenate((start[:1], moved.end_ns[own][:-1]))
        before = np.minimum(before, start)
        spent = intervals.overlap(busy[device], before, start)
        work[place, there[place]] = spent
        idle[place, there[place]] = start - before - spent
    return work, idle
