"""Idle time of each device, to the nanosecond, by what held up the work that ended it.

Each idle gap is walked back from its end along the binding edges of the graph: from the work to its
launch call, from there along the thread, over what another thread did where threads take turns,
until the gap's start. The parts of a gap are disjoint and sum to it.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from enum import IntEnum

import numpy as np

from traceview.base.compiled import library
from traceview.base.intervals import Timed
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, RowNumbers
from traceview.traces.facts.dependencies.graph import Dependencies
from traceview.traces.facts.dependencies.replay import compiled


class IdlePart(IntEnum):
    """What held up the work meanwhile."""

    LAUNCH = 0
    """The call that launched it, and the way from there to the GPU; `item` is the call."""
    CALL = 1
    """Another call of the thread, `item`."""
    HOST = 2
    """The thread's own work outside of calls, before the call `item`."""
    TAIL = 3
    """The return of the synchronization `item` from a wait whose work was done."""
    WAKE = 4
    """Until the thread of the call `item` continued after another had handed over."""
    PITCH = 5
    """Work that had to wait began behind the operation `item`."""
    HELD = 6
    """The operation `item` was launched; the recording does not say what else it waited for."""
    OTHER = 7
    """Work of another device, `item`."""
    UNKNOWN = 8
    """Before the first recorded call of the thread, or without a recorded launch."""


@record
class IdleParts(Timed, ColumnRecord):
    """Parts of gaps, by gap and from its end back to its start. `item` is −1 where unknown."""

    gap: RowNumbers
    start_ns: Integers
    end_ns: Integers
    kind: Array
    item: RowNumbers


def walk(
    graph: Dependencies, gap_start_ns: Integers, gap_end_ns: Integers, after: RowNumbers
) -> IdleParts:
    """The parts of gaps; `after` are the items that ended them."""
    none = np.zeros(0, np.int32)
    given = compiled(graph, graph.own_ns, graph.begin.lag_ns, graph.finish.lag_ns, none)
    room = 4 * len(after) + 1024
    while True:
        gap, item = np.empty(room, np.int32), np.empty(room, np.int32)
        start, end = np.empty(room, np.int64), np.empty(room, np.int64)
        kind = np.empty(room, np.uint8)
        parts = _Parts(room, 0, *(library.address(each) for each in (gap, item, start, end, kind)))
        library.call("traceview_walk", given, gap_start_ns, gap_end_ns, after, len(after), parts)
        if parts.count <= room:
            filled = slice(int(parts.count))
            return IdleParts(gap[filled], start[filled], end[filled], kind[filled], item[filled])
        room = int(parts.count)


class _Parts(Structure):
    _fields_ = (
        ("room", c_int64),
        ("count", c_int64),
        *((name, c_void_p) for name in ("gap", "item", "start", "end", "kind")),
    )
