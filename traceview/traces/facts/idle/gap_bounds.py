"""Where each idle gap of a device begins and ends, and the gaps in which work may have run
that the recording lost.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Timed
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, Mask, RowNumbers, picked
from traceview.traces.facts import operations
from traceview.traces.facts.kernel_classes import communication_operations
from traceview.traces.facts.launches import cut_window, unpaired, waits
from traceview.traces.facts.ranges.selection import issued_ns
from traceview.traces.trace import Trace, fact, fact_without_ranges, schema


class IdleTime(Timed, ColumnRecord):
    """Base of tables with one row per idle gap."""

    @cached_property
    def idle_ns(self) -> Integers:
        return self.duration_ns


@record
class GapBounds(IdleTime):
    """Idle gaps, one row per gap, by device and start.

    `before` is the operation that ended last before the gap, `after` the one that ended the gap.
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers


@fact_without_ranges
def gap_bounds(trace: Trace) -> GapBounds:
    """All idle gaps of all devices."""
    ops = operations.operations(trace)
    return find_gaps(ops.device, ops.start_ns, ops.end_ns)


def find_gaps(device: Array, start: Integers, end: Integers) -> GapBounds:
    """The idle gaps between intervals of work, given in order of start."""
    befores: list[Array] = [np.zeros(0, np.int64)]
    afters: list[Array] = [np.zeros(0, np.int64)]
    for on_device in groups.rows_of(device).values():
        rows = on_device[picked(end, on_device) > picked(start, on_device)]
        starts, ends = picked(start, rows), picked(end, rows)
        latest = latest_so_far(ends)
        opens = np.flatnonzero(starts[1:] > picked(ends, latest)[:-1])
        befores.append(rows[latest[opens]])
        afters.append(rows[opens + 1])
    before, after = np.concatenate(befores), np.concatenate(afters)
    return GapBounds(device[after], end[before], start[after], before, after)


def latest_so_far(end: Integers) -> Integers:
    """For each index i, the index of the greatest end among 0 to i."""
    latest = end == np.maximum.accumulate(end)
    return np.maximum.accumulate(np.where(latest, np.arange(len(end)), 0))


# The launch call of the work that ended each idle gap, and what its thread did in the gap.


@record
class GapLaunches:
    """The launch call of the work that ended each gap, one row per gap.

    `call` is its row in api_calls. Where `known` is False it was not recorded: `call` is −1 and
    the other columns mean nothing.

    The work is queued once the call has returned or its first operation has started. A copy is
    queued when its call starts, as a blocking one returns long after.
    """

    call: RowNumbers
    known: Mask
    issued_ns: Integers
    queued_ns: Integers
    thread: Array
    process: Array


@fact_without_ranges
def gap_launches(trace: Trace) -> GapLaunches:
    return join_launches(
        gap_bounds(trace), operations.operations(trace), operations.api_calls(trace)
    )


def join_launches(
    gaps: GapBounds, ops: operations.Operations, calls: operations.ApiCalls
) -> GapLaunches:
    """The launch call of each gap, by the operation that ended the gap."""
    call, process = ops.call[gaps.after], ops.process[gaps.after]
    known = call >= 0
    if not known.any():
        thread = np.full(len(gaps), -1, np.int64)
        start = gaps.start_ns
        return GapLaunches(call, known, start, start, thread, process)
    row = np.where(known, call, call[known][0])
    issued, returned = calls.start_ns[row], calls.end_ns[row]
    first_start = np.full(len(calls), np.iinfo(np.int64).max)
    launched = np.flatnonzero(ops.launched)
    np.minimum.at(first_start, ops.call[launched], ops.start_ns[launched])
    started = np.minimum(returned, first_start[row])
    copies = np.isin(calls.does[row], [operations.CallKind.COPY, operations.CallKind.COPY_ASYNC])
    return GapLaunches(
        call=call,
        known=known,
        issued_ns=issued,
        queued_ns=np.where(copies, issued, np.maximum(started, issued)),
        thread=calls.thread[row],
        process=process,
    )


ANY_DEVICE = -1


@fact
def lost_launches(trace: Trace) -> Mask:
    """True for the launch calls (rows of api_calls) whose work is not in the recording.

    Work that had not started when a cut window ended is not lost.
    """
    alone = unpaired(trace)
    return alone.launches & ~alone.late if cut_window(trace) is not None else alone.launches


@fact
def device_of_calls(trace: Trace) -> Integers:
    """The device (row in devices) that each API call targets, inferred from recorded launches.

    That is the device of the last recorded launch of its thread, else of the next one, else of the
    only device of its process, else ANY_DEVICE.
    """
    ops, calls = operations.operations(trace), trace.recorded("api_calls")
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    device = np.full(len(calls), ANY_DEVICE, np.int64)
    device[ops.call[ops.launched]] = ops.device[ops.launched]
    in_order, thread = device[order], calls["thread"][order]
    for turn in (slice(None), slice(None, None, -1)):
        # The last known device of the same thread fills in the unknown ones after it.
        found, of_thread = in_order[turn], thread[turn]
        last = np.maximum.accumulate(np.where(found >= 0, np.arange(len(found)), 0))
        in_order[turn] = np.where(of_thread[last] == of_thread, found[last], found)
    device[order] = in_order
    for process in groups.different(calls["process"][device < 0]).tolist():
        used = groups.different(ops.device[ops.process == process])
        if len(used) == 1:
            device[(calls["process"] == process) & (device < 0)] = used[0]
    return device


_FOR_WORK = (
    operations.CallKind.SYNCHRONIZE,
    operations.CallKind.COPY,
    operations.CallKind.COPY_ASYNC,
)
LEAST_WAIT_NS = 1_000_000
"""So long nothing holds up the first wait of a process but work: 463 ms in a public recording."""


def _before_recording(trace: Trace, gaps: GapBounds) -> Mask:
    """True for the gaps that the first wait of a process takes up, in a window that torch.profiler
    recorded: a thread waits so long only for work, and that was launched before the window.

    Work that is queued behind it on its stream is late for the same reason, if it is the first
    there: a stream runs in order.
    """
    result = np.zeros(len(gaps), bool)
    if trace.recorder != schema.TORCH_PROFILER:
        return result
    every, ops = waits(trace), operations.operations(trace)
    process, copies = ops.process[gaps.after], ops.kind[gaps.after] == operations.Kind.COPY
    behind = copies | np.isin(gaps.after, groups.group(ops.stream).first)
    # Freeing memory and loading code take long for reasons of their own.
    long = np.isin(every.does, _FOR_WORK) & (every.duration_ns >= LEAST_WAIT_NS)
    for number in groups.different(process).tolist():
        own = np.flatnonzero((every.process == number) & long)
        first = own[np.argsort(every.start_ns[own], kind="stable")[:1]]
        waited = intervals.covered(every, first)
        shared_ns = intervals.overlap(waited, gaps.start_ns, gaps.end_ns)
        # Whatever else was launched before the wait may itself be late.
        alone = behind | (issued_ns(trace)[gaps.after] >= every.end_ns[first].max(initial=0))
        result |= (process == number) & (shared_ns >= LEAST_WAIT_NS) & alone
    return result


@fact
def first_wait_ns(trace: Trace) -> int:
    """How long a window of torch.profiler begins with a wait, before all of its GPU work."""
    every, ops = waits(trace), operations.operations(trace)
    if trace.recorder != schema.TORCH_PROFILER or not len(ops):
        return 0
    before_ns = np.minimum(every.end_ns, ops.start_ns[0]) - every.start_ns
    return int(
        before_ns[np.isin(every.does, _FOR_WORK) & (before_ns >= LEAST_WAIT_NS)].max(initial=0)
    )


def holds_communication_alone(trace: Trace) -> bool:
    """Whether someone left nothing but the collectives in a recording, and no calls of the CPU."""
    others = ~communication_operations(trace)
    return "api_calls" not in trace.tables and len(others) > 0 and not others.any()


def hold_lost_work(trace: Trace, gaps: GapBounds) -> Mask:
    """True for the gaps in which lost work may have run.

    Work of a process runs in the order of its launches: work lost in a gap was launched after the
    operation before the gap and before the operation after it. Where one of these operations is of
    another process, the start or end of the gap takes the place of its launch.
    """
    rows = np.flatnonzero(lost_launches(trace))
    result = _before_recording(trace, gaps)
    if holds_communication_alone(trace):
        result[:] = True
    if not len(rows):
        return result
    calls, ops, issued = trace.recorded("api_calls"), operations.operations(trace), issued_ns(trace)
    device, process = device_of_calls(trace)[rows], calls["process"][rows]
    for number in groups.different(process).tolist():
        since = np.where(ops.process[gaps.before] == number, issued[gaps.before], gaps.start_ns)
        until = np.where(ops.process[gaps.after] == number, issued[gaps.after], gaps.end_ns)
        for on in groups.different(device[process == number]).tolist():
            lost = np.sort(calls["start_ns"][rows[(process == number) & (device == on)]])
            holds = np.searchsorted(lost, since) < np.searchsorted(lost, until)
            result |= holds & ((gaps.device == on) | (on == ANY_DEVICE))
    return result
