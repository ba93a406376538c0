"""How long launches were held back because the launch queue was full.

The queue of a stream holds about a thousand entries. Once it is full, each call that enqueues
work waits until the GPU has taken one out: the GPU has plenty to do, and the call's time is no
cost of launching.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, intervals
from traceview.facts.operations.operations import first_launches, operations
from traceview.facts.queue.queue import rows_by_stream, stream_depth
from traceview.intervals import EMPTY, Intervals
from traceview.tables import Array, Integers, Mask, constant
from traceview.trace import Trace, fact

FULL = 1000
"""Least depth at which a queue may be full. On an H200 (driver 580) the depth of a stream rises to
1,023 and no further: calls made at 1,023 took 67 µs (median), at 1,022 and below 4 µs."""

PLATEAU = 1
"""A call counts as made at the top of the plateau within this of the stream's greatest depth."""

FAR_LONGER = 4
"""A call was held back if it took so many times the median of the undisturbed calls of its name.
Of 2,325 undisturbed calls on an H200 1 in 50 took longer; of the 44 at the plateau 21 did, most of
them by 16 to 49 times."""


@dataclass(frozen=True)
class QueueFull:
    """When each thread stood before a full queue, and for how long each API call did.

    `recorded` tells whether the recorder says so; else it is inferred from depth and duration.
    """

    held_ns: Integers
    by_thread: dict[int, Intervals]
    recorded: bool

    def inside(self, thread: int, start: Integers, end: Integers) -> Integers:
        """How much of each [start, end) the thread stood before a full queue."""
        return intervals.overlap(self.by_thread.get(thread, EMPTY), start, end)


@fact
def queue_full(trace: Trace) -> QueueFull:
    """Held time by the recorder's own records where there are some, else inferred."""
    calls, overheads = trace.recorded("api_calls"), trace.recorded("overheads")
    mine = overheads.texts("kind").isin(["queue-full"]) & ~overheads.is_null("thread")
    recorded = bool(mine.any())
    if recorded:
        thread, start, end = (overheads[c][mine] for c in ("thread", "start_ns", "end_ns"))
    else:
        row, held = _inferred(trace)
        thread, start = calls["thread"][row], calls["start_ns"][row]
        end = start + held
    by_thread = {
        int(t): intervals.union(start[thread == t], end[thread == t])
        for t in groups.different(thread)
    }
    if not by_thread:
        return QueueFull(constant(0, len(calls), np.int64), {}, recorded)
    found = QueueFull(np.zeros(len(calls), np.int64), by_thread, recorded)
    rows = _enqueuing(trace)
    for number in by_thread:
        own = rows[calls["thread"][rows] == number]
        found.held_ns[own] = found.inside(number, calls["start_ns"][own], calls["end_ns"][own])
    return found


def _enqueuing(trace: Trace) -> Integers:
    """Rows of api_calls that enqueued work."""
    done = operations(trace)
    enqueues = np.zeros(len(trace.recorded("api_calls")), bool)
    enqueues[done.call[done.launched]] = True
    return np.flatnonzero(enqueues)


def _inferred(trace: Trace) -> tuple[Integers, Integers]:
    """The calls held back, and by how much they exceed the median of the undisturbed ones.

    What held a call back comes first: the work goes into the queue once there is room.
    """
    calls, rows = trace.recorded("api_calls"), _enqueuing(trace)
    # Several operations of one call are one entry: the queue is no deeper than they are many.
    streams = range(len(operations(trace).streams))
    if not trace.selection and all(stream_depth(trace, each).most < FULL for each in streams):
        return rows[:0], rows[:0]
    full, calm = _plateau(trace, rows)
    if not full.any():
        return rows[:0], rows[:0]
    took = calls.duration_ns[rows]
    name = groups.group(calls.texts("name").codes[rows])
    usual = _medians(name, took, calm)[name.ids]
    held = full & (usual >= 0) & (took > FAR_LONGER * usual)
    return rows[held], (took - usual)[held]


def _medians(name: groups.Groups, took: Integers, calm: Mask) -> Integers:
    """Median duration of the calm calls of each name, −1 where there are none."""
    result = np.full(name.size, -1, np.int64)
    found = groups.group(name.ids[calm])
    result[name.ids[calm][found.first]] = groups.stats(found, took[calm]).median
    return result


def _plateau(trace: Trace, rows: Integers) -> tuple[Mask, Mask]:
    """Which of the calls were made before a full queue, and which before one that is surely not.

    A graph is one entry, however many nodes it has. First launches load code: they are not calm.
    """
    done, calls = operations(trace), trace.recorded("api_calls")
    full, calm = np.zeros(len(calls), bool), np.zeros(len(calls), bool)
    for ops in rows_by_stream(trace):
        call, depth = _depths(trace, ops)
        most = int(depth.max(initial=0))
        full[call] = (depth >= most - PLATEAU) & (most >= FULL)
        calm[call] = depth < FULL - FULL // 10
    calm[done.call[first_launches(trace) & done.launched]] = False
    return full[rows], calm[rows]


def _depths(trace: Trace, ops: Array) -> tuple[Integers, Integers]:
    """The calls that enqueued those operations, and the entries in the queue with each one."""
    done, calls = operations(trace), trace.recorded("api_calls")
    ops = ops[done.call[ops] >= 0]
    each = groups.group(done.call[ops])
    call: Array = done.call[ops[each.first]]
    end = np.full(each.size, np.iinfo(np.int64).min)
    np.maximum.at(end, each.ids, done.end_ns[ops])
    start = calls["start_ns"][call]
    begun = np.searchsorted(np.sort(start), start, side="right")
    return call, begun - np.searchsorted(np.sort(end), start, side="right")
