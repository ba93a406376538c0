"""What queued work stood behind: the operation before it on its stream, or an event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.idle.gap_bounds import edges
from traceview.facts.idle.gap_launches import launches
from traceview.facts.operations.operations import Operations, operations
from traceview.tables import Integers, Mask, RowNumbers
from traceview.trace import Trace, fact

NEVER = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Behind:
    """One row an idle gap: the operation that the work which ended it stood behind.

    That is the operation before it on its stream. Where the stream was made to wait for an event
    in between (cudaStreamWaitEvent), it is the operation of its process that ended last before the
    work started, on whichever stream and device. `operation` is −1 where there is none.
    """

    operation: RowNumbers
    by_event: Mask


@fact
def behind(trace: Trace) -> Behind:
    done, gap = operations(trace), edges(trace)
    own = before_on_stream(trace)[gap.after]
    event = _waited_for_event(trace, own)
    found = own.copy()
    rows = np.flatnonzero(event)
    for process in groups.different(done.process[gap.after[rows]]):
        asked = rows[done.process[gap.after[rows]] == process]
        mine = np.flatnonzero(done.process == process)
        order = mine[np.argsort(done.end_ns[mine], kind="stable")]
        place = np.searchsorted(done.end_ns[order], gap.end_ns[asked], side="right") - 1
        found[asked] = np.where(place >= 0, order[np.maximum(place, 0)], -1)
    return Behind(found, event & (found != own))


@fact
def before_on_stream(trace: Trace) -> RowNumbers:
    """For each operation, the one that started before it on its stream, or −1."""
    done = operations(trace)
    order = groups.order_of(done.stream)
    before = np.full(len(done), -1, np.int32)
    same = done.stream[order][1:] == done.stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _waited_for_event(trace: Trace, own: RowNumbers) -> Mask:
    """True where the stream was told to wait between the launch calls of the two operations."""
    done, gap, made = operations(trace), edges(trace), launches(trace)
    calls = trace.recorded("api_calls")
    result = np.zeros(len(gap), bool)
    stream, time = _event_waits(trace, done)
    if not len(stream) or not len(calls):
        return result
    call = np.where(own >= 0, done.call[own], -1)
    since = np.where(call >= 0, calls["start_ns"][np.maximum(call, 0)], NEVER)
    for number in groups.different(stream):
        asked = np.flatnonzero(made.known & (done.stream[gap.after] == number))
        told = np.sort(time[stream == number])
        first = np.searchsorted(told, since[asked], side="right")
        result[asked] = first < np.searchsorted(told, made.asked_ns[asked], side="left")
    return result


def _event_waits(trace: Trace, done: Operations) -> tuple[Integers, Integers]:
    """Number of the stream and time of each wait of a stream for an event."""
    seen = trace.recorded("synchronizations")
    rows = np.flatnonzero(
        seen.texts("kind").isin(["stream-wait-event"]) & ~seen.is_null("stream_id")
    )
    streams = done.streams
    ids = groups.group(
        np.concatenate([streams[:, 0], seen["process"][rows]]),
        np.concatenate([streams[:, 2], seen["context_id"][rows]]),
        np.concatenate([streams[:, 3], seen["stream_id"][rows]]),
    ).ids
    number = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    number[ids[: len(streams)]] = np.arange(len(streams))
    stream = number[ids[len(streams) :]]
    return stream[stream >= 0], seen["start_ns"][rows][stream >= 0]
