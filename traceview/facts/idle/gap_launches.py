"""The launch call behind each idle gap: who made it, when, and what the CPU spent its time on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gap_bounds import edges
from traceview.facts.operations.cuda_api import Does, what_calls_do
from traceview.facts.operations.operations import Kind, first_launches, operations
from traceview.tables import Array, Integers, Mask, RowNumbers
from traceview.trace import Trace, fact

LAZY_LOAD_NS = 200_000
"""A first launch that lasts longer than this loads code; later launches take some 5 µs."""


@dataclass(frozen=True)
class Launches:
    """One row an idle gap: the call that enqueued the work that ended it.

    `call` is its row in api_calls, −1 where it was not recorded; the other columns mean nothing
    there. The work is queued once the call has returned or some of its work has started, and with
    a copy once the call is made: one that blocks returns long after.
    """

    call: RowNumbers
    known: Mask
    asked_ns: Integers
    queued_ns: Integers
    returned_ns: Integers
    thread: Array
    process: Array


@fact
def launches(trace: Trace) -> Launches:
    done, gap = operations(trace), edges(trace)
    calls = trace.recorded("api_calls")
    call = done.call[gap.after]
    known = call >= 0
    if not known.any():
        none = np.full(len(gap), -1, np.int64)
        start = gap.start_ns
        return Launches(call, known, start, start, start, none, done.process[gap.after])
    row = np.where(known, call, call[known][0])
    asked, returned = calls["start_ns"][row], calls["end_ns"][row]
    copies = np.isin(what_calls_do(trace)[row], [Does.COPY, Does.COPY_ASYNC])
    queued = np.minimum(returned, _first_start(trace)[row])
    return Launches(
        call=call,
        known=known,
        asked_ns=asked,
        queued_ns=np.where(copies, asked, np.maximum(queued, asked)),
        returned_ns=returned,
        thread=calls["thread"][row],
        process=done.process[gap.after],
    )


def _first_start(trace: Trace) -> Integers:
    """For each API call, when the first operation that it enqueued started."""
    done = operations(trace)
    first = np.full(len(trace.recorded("api_calls")), np.iinfo(np.int64).max)
    rows = np.flatnonzero(done.launched)
    np.minimum.at(first, done.call[rows], done.start_ns[rows])
    return first


def spent(trace: Trace, chosen: Mask) -> Integers:
    """How much of each gap the thread that made the launch call spent in the chosen API calls."""
    calls, made = trace.recorded("api_calls"), launches(trace)
    rows = np.flatnonzero(chosen)
    return covered(
        trace, calls["thread"][rows], calls["start_ns"][rows], calls["end_ns"][rows], made.known
    )


def covered(trace: Trace, thread: Array, start: Integers, end: Integers, asked: Mask) -> Integers:
    """How much of each asked gap those intervals cover that lie on the launching thread."""
    gap, made = edges(trace), launches(trace)
    result = np.zeros(len(gap), np.int64)
    for number in groups.different(thread):
        rows = np.flatnonzero(asked & (made.thread == number))
        mine = thread == number
        union = intervals.union(start[mine], end[mine])
        result[rows] = intervals.overlap(union, gap.start_ns[rows], gap.end_ns[rows])
    return result


@fact
def loading_calls(trace: Trace) -> Mask:
    """True for the API calls that load code, first launches that do so on their own included."""
    calls, done = trace.recorded("api_calls"), operations(trace)
    loads = np.isin(what_calls_do(trace), [Does.LOAD, Does.LOOK_UP])
    first = np.zeros(len(calls), bool)
    first[done.call[first_launches(trace) & done.launched]] = True
    result: Mask = loads | (first & (calls.duration_ns > LAZY_LOAD_NS))
    return result


def staged(trace: Trace) -> Integers:
    """How much of each gap the call of a copy from pageable memory took before the copy ran.

    The GPU cannot reach pageable memory: within that call the CPU first moves the bytes to where
    the GPU can.
    """
    done, gap, made = operations(trace), edges(trace), launches(trace)
    copies = trace.recorded("copies")
    pageable = copies.texts("source_memory").isin(["pageable"])
    pageable &= copies.texts("direction").isin(["H2D"])
    mine = made.known & (done.kind[gap.after] == Kind.COPY)
    mine[mine] = pageable[done.row[gap.after[mine]]]
    inside = np.minimum(gap.end_ns, made.returned_ns) - np.maximum(gap.start_ns, made.asked_ns)
    return np.where(mine, np.maximum(inside, 0), 0)
