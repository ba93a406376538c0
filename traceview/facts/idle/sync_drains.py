"""The synchronization that let the GPU run dry, for each idle gap."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gap_bounds import GapBounds, GapLaunches, latest_so_far
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
    gap, wait = _candidates(gaps, launches, waits, drains)
    holds = ~_thread_went_on(gaps, launches, waits, calls, enqueuing, gap, wait)
    gap, wait = gap[holds], wait[holds]
    # The last assignment to a gap wins: the last wait to return, the first of equal ones.
    order = np.lexsort((-np.arange(len(gap)), waits.end_ns[wait], gap))
    result[gap[order]] = wait[order]
    return result


def _candidates(
    gaps: GapBounds, launches: GapLaunches, waits: Waits, drains: Mask
) -> tuple[Integers, Integers]:
    """Pairs of a gap and a wait that may have caused it: one per thread of the gap's process."""
    of_process = groups.rows_of(launches.process)
    pairs = [(groups.NO_ROWS, groups.NO_ROWS)]
    for thread, rows in groups.rows_of(waits.thread).items():
        rows = rows[drains[rows]]
        process = int(waits.process[rows[0]]) if len(rows) else -1
        gap_rows = of_process.get(process, groups.NO_ROWS)
        gap_rows = gap_rows[launches.known[gap_rows]]
        if not len(gap_rows):
            continue
        start = gaps.start_ns[gap_rows]
        begun = np.searchsorted(waits.start_ns[rows], start, side="left") - 1
        wait = rows[latest_so_far(waits.end_ns[rows])[np.maximum(begun, 0)]]
        end = waits.end_ns[wait]
        holds = (begun >= 0) & (end <= launches.issued_ns[gap_rows])
        holds &= end >= np.where(launches.thread[gap_rows] == thread, start - RIGHT_AFTER_NS, start)
        holds &= end - waits.start_ns[wait] > gaps.idle_ns[gap_rows] // 2
        holds &= (waits.device[wait] < 0) | (waits.device[wait] == gaps.device[gap_rows])
        pairs.append((gap_rows[holds], wait[holds]))
    gap, wait = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return gap.astype(np.int64), wait.astype(np.int64)


def _thread_went_on(
    gaps: GapBounds,
    launches: GapLaunches,
    waits: Waits,
    calls: ApiCalls,
    enqueuing: Mask,
    gap: Integers,
    wait: Integers,
) -> Mask:
    """True where the launching thread enqueued work after the wait, or made calls during it."""
    result, thread, end = np.zeros(len(gap), bool), launches.thread[gap], waits.end_ns[wait]
    check = np.flatnonzero(end < gaps.start_ns[gap])
    enqueued = calls.thread[enqueuing], calls.start_ns[enqueuing]
    until = launches.issued_ns[gap[check]]
    result[check] = called_between(*enqueued, thread[check], end[check], until)
    check = np.flatnonzero(thread != waits.thread[wait])
    began = waits.start_ns[wait[check]]
    result[check] |= called_between(calls.thread, calls.start_ns, thread[check], began, end[check])
    return result


def called_between(
    call_thread: Array, call_ns: Integers, thread: Array, since: Integers, until: Integers
) -> Mask:
    """True for the (thread, since, until) where the thread made a call in [since, until)."""
    result = np.zeros(len(thread), bool)
    calls = groups.rows_of(call_thread) if len(thread) else {}
    for number, rows in groups.rows_of(thread).items():
        times = intervals.ascending(call_ns[calls[number]]) if number in calls else call_ns[:0]
        first = np.searchsorted(times, since[rows], side="left")
        result[rows] = first < np.searchsorted(times, until[rows], side="left")
    return result
