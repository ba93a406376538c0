"""Busy time and idle gaps of each device, and devices whose idle time is unknown.

`causes` has the rules by which a gap gets its cause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.base.vocabulary.causes import CAUSES, FIRST_USES, LOST_WORK
from traceview.traces.facts import compilation, operations
from traceview.traces.facts.dependencies.graph import predecessors
from traceview.traces.facts.idle import causes, gap_bounds
from traceview.traces.facts.ranges.selection import selected_calls, selected_operations
from traceview.traces.facts.steps import recompilation, steps
from traceview.traces.facts.steps.steps import warm_up_end_ns
from traceview.traces.trace import Trace, fact, fact_without_ranges


@fact_without_ranges
def busy(trace: Trace) -> dict[int, Intervals]:
    """Union of all operations of each device, by row in devices."""
    ops = operations.operations(trace)
    return {
        device: intervals.union(picked(ops.start_ns, rows), picked(ops.end_ns, rows))
        for device, rows in operations.operations_by_device(trace).items()
    }


@fact_without_ranges
def busy_by_process(trace: Trace) -> dict[int, dict[int, Intervals]]:
    """Union of the operations of each process on each device that it uses."""
    ops = operations.operations(trace)
    result: dict[int, dict[int, Intervals]] = {}
    for process, rows in operations.operations_by_process(trace).items():
        of_process = result[process] = {}
        for device, places in groups.rows_of(ops.device[rows]).items():
            there = rows[places]
            alone = len(there) == len(operations.operations_by_device(trace)[device])
            of_process[device] = busy(trace)[device] if alone else intervals.covered(ops, there)
    return result


def busy_ns(trace: Trace, chosen: Mask) -> int:
    """Time covered by the chosen operations."""
    ops = operations.operations(trace)
    return intervals.covered(ops, chosen).total()


class DeviceWork(NamedTuple):
    """Time in which a device was busy with selected operations: in all, and after warm-up."""

    all_ns: int
    steady_ns: int


@fact
def device_work(trace: Trace) -> dict[int, DeviceWork]:
    """The work of each device that has some, by row in devices."""
    ops, chosen = operations.operations(trace), selected_operations(trace)
    warm, result = steps.operations_in_warm_up_ranges(trace), {}
    for device, rows in operations.operations_by_device(trace).items():
        rows = rows[picked(chosen, rows)]
        if not len(rows):
            continue
        start, end = picked(ops.start_ns, rows), picked(ops.end_ns, rows)
        steady = int(np.searchsorted(start, warm_up_end_ns(trace)))
        kept: slice | Mask = slice(None) if warm is None else ~warm[rows[steady:]]
        later = intervals.union(start[steady:][kept], end[steady:][kept])
        result[device] = DeviceWork(intervals.union(start, end).total(), later.total())
    return result


@fact
def steady_spans_ns(trace: Trace) -> dict[int, int]:
    """Busy and idle time of each device, without warm-up and first uses.

    The time at stake of a finding is a share of this: in a short recording the seconds of start-up
    would make every other loss look small.
    """
    every = gaps(trace)
    return {
        device: work.steady_ns + int(every.idle_ns[every.steady(device)].sum())
        for device, work in device_work(trace).items()
    }


def main_device(trace: Trace) -> int:
    """The device (row in devices) with the longest steady span, the busiest of equals; else −1."""
    spans, work = steady_spans_ns(trace), device_work(trace)
    return max(spans, key=lambda device: (spans[device], work[device].steady_ns), default=-1)


def steady_span_ns(trace: Trace) -> int:
    """The longest steady span of any device.

    Not a sum: time that several devices lose at once is lost once.
    """
    return max(steady_spans_ns(trace).values(), default=0)


@record
class Gaps(gap_bounds.IdleTime):
    """Parts of idle gaps of devices by cause, one row per part; those of a gap sum to it.

    `gap` is the row of the whole gap in gap_bounds. `before` and `after` are the operations around
    the gap, `cause` an index into CAUSES, `wait` the row in `waits` that caused a sync-drain, else
    −1. `within` is the API call that most of the part was spent in, −1 outside of calls, and
    `thread` the thread that held the work up. `call` is the launch call of `after` (−1: not
    recorded), made at `issued_ns`; at `queued_ns` its work was queued. `behind` is the operation
    that `after` waited behind once queued, −1 where there is none; `by_event` is True where an
    event made it wait.

    `one_time` is True for what a longer run does not repeat: first uses of kernels, the first
    pinned memory of a process, whatever comes before the first kernel of a device or before the
    first step after warm-up, what was launched in ranges named warm_up, and a `lone_pause`: one as
    long as ten steps that is the only one outside of them. Parts that are mostly compilation, which
    `phases` reports, are one-time too, unless a loop compiles again and again.
    """

    gap: RowNumbers
    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers
    cause: Array
    wait: Integers
    within: RowNumbers
    call: RowNumbers
    thread: Array
    issued_ns: Integers
    queued_ns: Integers
    behind: RowNumbers
    by_event: Mask
    one_time: Mask
    lone_pause: Mask

    def count(self, chosen: Array) -> int:
        """The number of gaps of which some parts are chosen."""
        return len(groups.different(self.gap[chosen]))

    def whole(self) -> Gaps:
        """One row per gap: its first start and last end, and its cause with most of its time.

        The other columns are those of the longest part with that cause.
        """
        if not len(self):
            return self
        gap = groups.group(self.gap)
        by_cause = groups.group(self.gap, self.cause)
        of_cause = groups.sums(by_cause, self.idle_ns)[by_cause.ids]
        order = np.lexsort((np.arange(len(self)), -self.idle_ns, -of_cause, gap.ids))
        main = order[np.flatnonzero(groups.opens(gap.ids[order]))]
        start, end = self.start_ns[gap.first].copy(), self.end_ns[gap.first].copy()
        np.minimum.at(start, gap.ids, self.start_ns)
        np.maximum.at(end, gap.ids, self.end_ns)
        return replace(self.take(main), start_ns=start, end_ns=end)

    def steady(self, device: int, cause: int | None = None) -> Mask:
        """True for the parts on a device that a longer run repeats, of one cause or of all."""
        chosen: Mask = (self.device == device) & ~self.one_time
        return chosen if cause is None else chosen & (self.cause == cause)

    def by_cause(self, chosen: Array) -> Integers:
        """Idle time of the chosen parts by cause, an entry for each of CAUSES."""
        return groups.added(self.cause[chosen], self.idle_ns[chosen], len(CAUSES))


@fact_without_ranges
def first_compute_ns(trace: Trace) -> Integers:
    """The start of the first kernel or graph of each device.

    Never, the largest int64, where it has none; before all else, the least, where kernels were not
    recorded. So it is where copies before the first kernel are most of the work of the device, and
    most of the time until then: they are no start, then, but what the program does.
    """
    ops, limits = operations.operations(trace), np.iinfo(np.int64)
    first = limits.max if "kernels" in trace.tables else limits.min
    begins_ns = np.full(len(trace.devices), first)
    computes = np.isin(ops.kind, (operations.Kind.KERNEL, operations.Kind.GRAPH))
    np.minimum.at(begins_ns, ops.device[computes], ops.start_ns[computes])
    for device in groups.different(ops.device[computes]).tolist():
        own = ops.device == device
        copied_ns = busy_ns(trace, own & (ops.start_ns < begins_ns[device]))
        until_ns = int(begins_ns[device] - ops.start_ns[own].min())
        if 2 * copied_ns > max(busy_ns(trace, own), until_ns):
            begins_ns[device] = limits.min
    return begins_ns


@fact
def every_gap(trace: Trace) -> Gaps:
    """All idle gaps of all devices, whatever is selected."""
    bounds, parts, launches = (
        gap_bounds.gap_bounds(trace),
        causes.gap_causes(trace),
        gap_bounds.gap_launches(trace),
    )
    behind, warm = (
        predecessors(trace, causes.idle_graph(trace)),
        steps.operations_in_warm_up_ranges(trace),
    )
    gap = parts.gap
    device, after = bounds.device[gap], bounds.after[gap]
    one_time = parts.first_use | (bounds.start_ns[gap] < warm_up_end_ns(trace))
    one_time |= compilation.compiling(trace, parts.start_ns, parts.end_ns)
    one_time &= ~recompilation.recompiling(trace, parts.start_ns, parts.end_ns)
    one_time |= bounds.end_ns[gap] <= first_compute_ns(trace)[device]
    outside = ~one_time & (steps.step_of_operations(trace)[after] < 0)
    lone_pause = _in_lone_pause(trace, device, gap, np.where(outside, parts.idle_ns, 0))
    one_time |= lone_pause
    return Gaps(
        gap=gap,
        device=device,
        start_ns=parts.start_ns,
        end_ns=parts.end_ns,
        before=bounds.before[gap],
        after=after,
        cause=parts.cause,
        wait=parts.wait,
        within=parts.call,
        call=launches.call[gap],
        thread=parts.thread,
        issued_ns=launches.issued_ns[gap],
        queued_ns=launches.queued_ns[gap],
        behind=behind.operation[after],
        by_event=behind.by_event[after],
        one_time=one_time if warm is None else one_time | warm[after],
        lone_pause=lone_pause,
    )


LONG_PAUSE, MANY_STEPS = 10, 10
"""A pause is no part of a loop of so many steps if it is so many times as long as one of them. A
program of 30 passes of 1 ms was idle for 433 ms before it read its results."""
_ALIKE = 0.5


def _in_lone_pause(trace: Trace, device: Array, gap: RowNumbers, outside_ns: Integers) -> Mask:
    """True for the parts of the only gap outside the steps that is as long as many of them.

    `outside_ns` is the time of each part, 0 if it is in a step or one-time anyway. One pause is no
    habit: where another is half as long, as before each epoch, none is set aside.
    """
    timed, result = steps.pace(trace), np.zeros(len(gap), bool)
    usual = np.flatnonzero(timed.timed & ~timed.warm_up & ~timed.outlier)
    if len(usual) < MANY_STEPS:
        return result
    step_ns = int(timed.median_ns[usual].max())
    of_gap = groups.group(gap)
    idle_ns, on = groups.sums(of_gap, outside_ns), device[of_gap.first]
    for each in groups.different(on).tolist():
        own = np.flatnonzero(on == each)
        longest = own[np.argsort(idle_ns[own])[::-1]][:2]
        if idle_ns[longest[0]] < LONG_PAUSE * step_ns:
            continue
        if len(longest) < 2 or idle_ns[longest[1]] < _ALIKE * idle_ns[longest[0]]:
            result |= of_gap.ids == longest[0]
    return result


@fact
def gaps(trace: Trace) -> Gaps:
    """The idle gaps that selected work ended.

    The idle time of a selection, like that of a step, is the time before its work. One operation
    ends each gap, so disjoint selections have disjoint gaps, and the gaps of a selection and of
    its complement together are all gaps.
    """
    every = every_gap(trace)
    if not trace.selection:
        return every
    return every.take(selected_operations(trace)[every.after])


LEAST_FRACTION = 0.1
"""Lost work that may fill less than this fraction of the steady time leaves the figures sound,
unless it is most of the work of a process."""


@record
class UnknownIdle:
    """Selected launch calls to a device, and those of them whose work was not recorded.

    `gaps_ns` is the steady time of the gaps in which the lost work may have run.
    """

    lost: int
    launches: int
    gaps_ns: int


LONG_START = 0.5
"""A start that takes more of a GPU's time is what a run without steps is mostly about."""


@fact
def long_starts(trace: Trace) -> dict[int, int]:
    """How long devices idle before their first kernel, where a run without steps mostly does that.

    First uses of code and memory apart.
    """
    ops, every, result = operations.operations(trace), gaps(trace), dict[int, int]()
    if steps.pace(trace).timed.any():
        return result
    for device in steady_spans_ns(trace):
        own = ops.device == device
        before = (every.device == device) & (every.end_ns <= first_compute_ns(trace)[device])
        idle_ns = int(every.idle_ns[before & ~np.isin(every.cause, FIRST_USES)].sum())
        if idle_ns > LONG_START * int(ops.end_ns[own].max() - ops.start_ns[own].min()):
            result[device] = idle_ns
    return result


@fact
def unknown_idle(trace: Trace) -> dict[int, UnknownIdle]:
    """The devices (rows in devices) whose idle time is unknown.

    Lost work may have kept them busy, or is most of what some process launched.
    """
    every, result = gaps(trace), dict[int, UnknownIdle]()
    if not gap_bounds.lost_launches(trace).any() and not (every.cause == LOST_WORK).any():
        return result
    process = trace.recorded("api_calls")["process"]
    launching = (
        operations.call_kinds(trace) == operations.CallKind.LAUNCH
    ) & ~operations.captured_calls(trace)
    for device, span_ns in steady_spans_ns(trace).items():
        hiding = every.steady(device, LOST_WORK)
        gaps_ns = int(every.idle_ns[hiding].sum())
        # Lost launches and all launches to the device, by process.
        chosen = selected_calls(trace) & np.isin(
            gap_bounds.device_of_calls(trace), (device, gap_bounds.ANY_DEVICE)
        )
        lost, launches = (
            np.bincount(process[chosen & calls], minlength=len(trace.processes))
            for calls in (gap_bounds.lost_launches(trace), launching)
        )
        filled = gaps_ns > 0 and gaps_ns >= LEAST_FRACTION * span_ns
        if filled or (2 * lost > launches).any():
            result[device] = UnknownIdle(int(lost.sum()), int(launches.sum()), gaps_ns)
    return result
