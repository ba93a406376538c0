"""The synchronization that let the GPU run dry, for each idle gap."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.idle.gap_bounds import edges, reaching
from traceview.facts.idle.gap_launches import launches
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.cuda_api import Does
from traceview.facts.operations.operations import operations
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace

RIGHT_AFTER_NS = 10_000
"""Time of about two launch calls: a thread that has just left a wait has queued nothing yet."""


def drains(trace: Trace) -> Integers:
    """Row in waits of the synchronization that each gap began in or right after, or −1.

    In: a thread of the process stood in it when the GPU ran dry, and had left it when the launch
    call was made. One that still waits then did not hold that launch up, nor did one that waits
    for another device, nor another thread's while the launching thread went on making calls.

    Right after: the launching thread had left it for less than RIGHT_AFTER_NS, and the launch was
    the first work that it enqueued since. Of several, the one that returned last counts.

    Without the wait the launch could have been made earlier by as long as the wait lasted, and no
    more. So it is the cause where that is more than half of the gap; else the CPU was late anyway.
    """
    waited, made = waits(trace), launches(trace)
    found = np.full(len(edges(trace)), -1, np.int64)
    kinds = np.isin(waited.does, [Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC])
    for thread in groups.different(waited.thread[kinds]):
        rows = np.flatnonzero(kinds & (waited.thread == thread))
        asked = np.flatnonzero(made.known & (made.process == waited.process[rows[0]]))
        last, held = _last_begun(trace, waited, rows, asked)
        before = found[asked]
        held &= (before < 0) | (waited.end_ns[last] > waited.end_ns[np.maximum(before, 0)])
        found[asked] = np.where(held, last, before)
    return found


def _last_begun(
    trace: Trace, waited: Waits, rows: Integers, asked: Integers
) -> tuple[Integers, Mask]:
    """Of one thread's waits, the one to look at for each gap, and whether it holds."""
    gap, made = edges(trace), launches(trace)
    start, until = gap.start_ns[asked], made.asked_ns[asked]
    begun = np.searchsorted(waited.start_ns[rows], start, side="left") - 1
    last = rows[reaching(waited.end_ns[rows])[np.maximum(begun, 0)]]
    end = waited.end_ns[last]
    held = (begun >= 0) & (end <= until) & (end >= start - RIGHT_AFTER_NS)
    held &= end - waited.start_ns[last] > gap.idle_ns[asked] // 2
    held &= (waited.device[last] < 0) | (waited.device[last] == gap.device[asked])
    own = made.thread[asked] == waited.thread[rows[0]]
    late = held & (end < start)
    held[late & ~own] = False
    check = np.flatnonzero(held & (end < start))
    held[check] = ~_enqueued_between(trace, made.thread[asked[check]], end[check], until[check])
    check = np.flatnonzero(held & ~own)
    begin = waited.start_ns[last[check]]
    held[check] = ~_called_between(trace, made.thread[asked[check]], begin, end[check])
    return last, held


def _enqueued_between(trace: Trace, thread: Array, since: Integers, until: Integers) -> Mask:
    """Did the thread make a call in [since, until) that enqueued work?"""
    done, calls = operations(trace), trace.recorded("api_calls")
    enqueues = np.zeros(len(calls), bool)
    enqueues[done.call[done.launched]] = True
    return _between(calls["thread"][enqueues], calls["start_ns"][enqueues], thread, since, until)


def _called_between(trace: Trace, thread: Array, since: Integers, until: Integers) -> Mask:
    """Did the thread make any call in [since, until)?"""
    calls = trace.recorded("api_calls")
    return _between(calls["thread"], calls["start_ns"], thread, since, until)


def _between(track: Array, time: Integers, thread: Array, since: Integers, until: Integers) -> Mask:
    result = np.zeros(len(thread), bool)
    for number in groups.different(thread):
        asked = thread == number
        made = np.sort(time[track == number])
        first = np.searchsorted(made, since[asked], side="left")
        result[asked] = first < np.searchsorted(made, until[asked], side="left")
    return result
