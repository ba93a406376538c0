"""How far the CPU runs ahead of each stream: queue wait and queue depth.

Queue wait is max(0, operation start − launch call end); queue depth is the number of operations
whose launch call has started and that have not ended. Both need the launch call, so operations
without one count in neither.
"""

from __future__ import annotations

import numpy as np

from traceview import intervals
from traceview.facts.operations.cuda_api import ApiCalls, api_calls
from traceview.facts.operations.operations import Operations, operations, operations_by_stream
from traceview.facts.ranges.selection import selected_operations
from traceview.intervals import Depth
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.tables.quantiles import quantile
from traceview.trace import Trace, fact, fact_without_ranges


@fact_without_ranges
def queue_wait_ns(trace: Trace) -> Integers:
    """Queue wait of each operation; −1 where its launch call is not known."""
    return queue_waits(operations(trace), api_calls(trace))


def queue_waits(ops: Operations, calls: ApiCalls) -> Integers:
    """Queue wait of each operation in ns; −1 where its launch call is not known."""
    wait = np.full(len(ops), -1, np.int64)
    known = ops.launched
    if known.any():
        wait[known] = np.maximum(ops.start_ns[known] - picked(calls.end_ns, ops.call[known]), 0)
    return wait


@record
class QueueWait:
    """Statistics of queue waits; None where no operation has a known call.

    Percentiles are interpolated and rounded.
    """

    median_ns: int | None
    p90_ns: int | None
    most_ns: int | None


def wait_of(trace: Trace, rows: Array) -> QueueWait:
    """Statistics of the queue waits of these operations."""
    wait = picked(queue_wait_ns(trace), rows)
    wait = wait[wait >= 0]
    if not len(wait):
        return QueueWait(None, None, None)
    return QueueWait(
        round(quantile(wait, 0.5)),
        round(quantile(wait, 0.9)),
        int(wait.max()),
    )


def stream_depth(trace: Trace, stream: int) -> Depth:
    """Queue depth that the selected operations of a stream saw."""
    return _stream_depths(trace)[stream]


@fact
def _stream_depths(trace: Trace) -> tuple[Depth, ...]:
    chosen = selected_operations(trace)
    return tuple(depth_of(trace, rows, chosen) for rows in rows_by_stream(trace))


@fact_without_ranges
def rows_by_stream(trace: Trace) -> tuple[RowNumbers, ...]:
    """The operations of each stream, in order of start: one pass for all streams."""
    ops = operations(trace)
    ends = np.cumsum(np.bincount(ops.stream, minlength=len(ops.streams)))
    return tuple(np.split(operations_by_stream(trace), ends[:-1]))


def depth_of(trace: Trace, rows: Array, chosen: Mask) -> Depth:
    """Greatest and time-weighted mean depth that the chosen ones of these operations saw."""
    return queue_depth(operations(trace), api_calls(trace), rows, chosen)


def queue_depth(ops: Operations, calls: ApiCalls, rows: Array, chosen: Mask) -> Depth:
    """Depth of a queue that holds the operations `rows`, as the chosen ones saw it.

    `chosen` is a mask over all operations.
    """
    call = picked(ops.call, rows)
    if len(call) and call.min() < 0:
        rows, call = rows[call >= 0], call[call >= 0]
    if not len(rows):
        return Depth(0, 0.0)
    start = picked(calls.start_ns, call)
    return intervals.depth(start, picked(ops.end_ns, rows), picked(chosen, rows))
