"""Predecessors of queued work: the operation before it on its stream, or an event."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gap_bounds import GapBounds, GapLaunches, gap_bounds, gap_launches
from traceview.facts.operations.cuda_api import ApiCalls, api_calls
from traceview.facts.operations.operations import Operations, operations, operations_by_stream
from traceview.records import record
from traceview.tables import Integers, Mask, RowNumbers, picked
from traceview.trace import Trace, fact_without_ranges

NEVER = int(np.iinfo(np.int64).min)


@record
class EventWaits:
    """Calls that made a stream wait for an event: the row of the stream and the time."""

    stream: Integers
    time_ns: Integers


@record
class Predecessors:
    """The predecessor of the work that ended each gap, one row per gap.

    That is the previous operation on the work's stream. Where the stream was made to wait for an
    event in between (cudaStreamWaitEvent), it is the operation of the same process that ended last
    before the work started, on whichever stream and device. `operation` is −1 where there is none.
    """

    operation: RowNumbers
    by_event: Mask


@fact_without_ranges
def predecessors(trace: Trace) -> Predecessors:
    ops = operations(trace)
    syncs, streams = trace.recorded("synchronizations"), ops.streams
    rows = np.flatnonzero(
        syncs.texts("kind").isin(["stream-wait-event"]) & ~syncs.is_null("stream_id")
    )
    ids = groups.group(
        np.concatenate([streams[:, 0], syncs["process"][rows]]),
        np.concatenate([streams[:, 2], syncs["context_id"][rows]]),
        np.concatenate([streams[:, 3], syncs["stream_id"][rows]]),
    ).ids
    row_of = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    row_of[ids[: len(streams)]] = np.arange(len(streams))
    stream = row_of[ids[len(streams) :]]
    waits = EventWaits(stream[stream >= 0], syncs["start_ns"][rows][stream >= 0])
    previous = previous_on_stream(ops.stream, operations_by_stream(trace))
    return find_predecessors(
        gap_bounds(trace), gap_launches(trace), ops, api_calls(trace), waits, previous
    )


def find_predecessors(
    gaps: GapBounds,
    launches: GapLaunches,
    ops: Operations,
    calls: ApiCalls,
    waits: EventWaits,
    previous: RowNumbers,
) -> Predecessors:
    """The predecessor of the work that ended each gap; `previous` is that on its stream."""
    on_stream = picked(previous, gaps.after)
    event = _waited_for_event(gaps, launches, ops, calls, waits, on_stream)
    result = on_stream.copy()
    rows = np.flatnonzero(event)
    for process in groups.different(ops.process[gaps.after[rows]]):
        waiting = rows[ops.process[gaps.after[rows]] == process]
        own = np.flatnonzero(ops.process == process)
        by_end = own[np.argsort(ops.end_ns[own], kind="stable")]
        last = np.searchsorted(ops.end_ns[by_end], gaps.end_ns[waiting], side="right") - 1
        result[waiting] = np.where(last >= 0, by_end[np.maximum(last, 0)], -1)
    return Predecessors(result, event & (result != on_stream))


def previous_on_stream(stream: RowNumbers, order: RowNumbers) -> RowNumbers:
    """For each operation, the one that started before it on its stream, or −1.

    `order` are all operations, sorted by stream and then by start.
    """
    previous = np.empty(len(stream), np.int32)
    previous[order[:1]] = -1
    # Where a stream begins in that order, the operation before is of another.
    begins = groups.opens(picked(stream, order))[1:]
    previous[order[1:]] = np.where(begins, np.int32(-1), order[:-1])
    return previous


def _waited_for_event(
    gaps: GapBounds,
    launches: GapLaunches,
    ops: Operations,
    calls: ApiCalls,
    waits: EventWaits,
    on_stream: RowNumbers,
) -> Mask:
    """True where the stream was made to wait after the predecessor's launch, before the work's."""
    result = np.zeros(len(gaps), bool)
    if not len(waits.stream) or not len(calls):
        return result
    call = np.where(on_stream >= 0, ops.call[on_stream], -1)
    since = np.where(call >= 0, calls.start_ns[np.maximum(call, 0)], NEVER)
    for number in groups.different(waits.stream):
        rows = np.flatnonzero(launches.known & (ops.stream[gaps.after] == number))
        times = intervals.ascending(waits.time_ns[waits.stream == number])
        first = np.searchsorted(times, since[rows], side="right")
        result[rows] = first < np.searchsorted(times, launches.issued_ns[rows], side="left")
    return result
