"""The synchronization that let the GPU run dry, for each idle gap."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.idle.gap_bounds import GapBounds, latest_so_far
from traceview.facts.idle.gap_launches import GapLaunches
from traceview.facts.operations.blocking_calls import Waits
from traceview.facts.operations.cuda_api import ApiCalls, CallKind
from traceview.tables import Array, Integers, Mask

RIGHT_AFTER_NS = 10_000
"""Time of about two launch calls: a thread that has just left a wait has queued nothing yet."""


def find_drains(
    gaps: GapBounds, launches: GapLaunches, waits: Waits, calls: ApiCalls, enqueuing: Mask
) -> Integers:
    """Row in waits of the synchronization that each gap began in or right after, or −1.

    `enqueuing` is True for the API calls that enqueued work.

    In: a thread of the process was inside the wait when the GPU ran dry, and had left it when the
    launch call was made. A wait that outlasts the launch call did not hold it up. Neither did one
    for another device, nor one of another thread while the launching thread kept making calls.

    Right after: the launching thread had left the wait for less than RIGHT_AFTER_NS, and the
    launch was the first work that it enqueued since. Of several waits, the last to return counts.

    Without the wait the launch could have been made earlier by as long as the wait lasted, and no
    more. So the wait is the cause if it is longer than half of the gap; otherwise the CPU was late
    anyway.
    """
    result = np.full(len(gaps), -1, np.int64)
    drains = np.isin(waits.does, [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC])
    for thread in groups.different(waits.thread[drains]):
        rows = np.flatnonzero(drains & (waits.thread == thread))
        asked = np.flatnonzero(launches.known & (launches.process == waits.process[rows[0]]))
        wait, holds = _candidates(gaps, launches, waits, calls, enqueuing, rows, asked)
        other = result[asked]
        holds &= (other < 0) | (waits.end_ns[wait] > waits.end_ns[np.maximum(other, 0)])
        result[asked] = np.where(holds, wait, other)
    return result


def _candidates(
    gaps: GapBounds,
    launches: GapLaunches,
    waits: Waits,
    calls: ApiCalls,
    enqueuing: Mask,
    rows: Integers,
    asked: Integers,
) -> tuple[Integers, Mask]:
    """Of one thread's waits, the candidate for each gap, and whether it is the cause."""
    start, until = gaps.start_ns[asked], launches.issued_ns[asked]
    begun = np.searchsorted(waits.start_ns[rows], start, side="left") - 1
    wait = rows[latest_so_far(waits.end_ns[rows])[np.maximum(begun, 0)]]
    end, thread = waits.end_ns[wait], launches.thread[asked]
    holds = (begun >= 0) & (end <= until) & (end >= start - RIGHT_AFTER_NS)
    holds &= end - waits.start_ns[wait] > gaps.idle_ns[asked] // 2
    holds &= (waits.device[wait] < 0) | (waits.device[wait] == gaps.device[asked])
    own = thread == waits.thread[rows[0]]
    holds[(end < start) & ~own] = False
    check = np.flatnonzero(holds & (end < start))
    if len(check):
        enqueued = calls.thread[enqueuing], calls.start_ns[enqueuing]
        holds[check] = ~called_between(*enqueued, thread[check], end[check], until[check])
    check = np.flatnonzero(holds & ~own)
    began = waits.start_ns[wait[check]]
    made = calls.thread, calls.start_ns
    holds[check] = ~called_between(*made, thread[check], began, end[check])
    return wait, holds


def called_between(
    call_thread: Array, call_ns: Integers, thread: Array, since: Integers, until: Integers
) -> Mask:
    """True for the (thread, since, until) in which the thread made one of the calls.

    `since` is included and `until` is not.
    """
    result = np.zeros(len(thread), bool)
    for number in groups.different(thread):
        rows = thread == number
        times = np.sort(call_ns[call_thread == number])
        first = np.searchsorted(times, since[rows], side="left")
        result[rows] = first < np.searchsorted(times, until[rows], side="left")
    return result
