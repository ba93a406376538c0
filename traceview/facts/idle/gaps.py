"""When each device was busy, its idle gaps, and the cause of each gap.

`gap_causes` says how the cause is told.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.causes import (
    ALLOCATION,
    CAUSES,
    COPY_WAIT,
    DEPENDENCY,
    GRAPH_LAUNCH,
    LAUNCH_LATE,
    MODULE_LOAD,
    PROFILER,
    SYNC_DRAIN,
    UNKNOWN,
    profilers_own,
    reasons,
)
from traceview.facts.idle.gap_bounds import edges
from traceview.facts.idle.gap_launches import launches
from traceview.facts.idle.stream_order import behind
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import operations_in_warm_up, operations_in_warm_up_ranges
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, Mask, RowNumbers
from traceview.trace import Trace, fact

__all__ = [
    "ALLOCATION",
    "CAUSES",
    "COPY_WAIT",
    "DEPENDENCY",
    "GRAPH_LAUNCH",
    "LAUNCH_LATE",
    "MODULE_LOAD",
    "PROFILER",
    "SYNC_DRAIN",
    "UNKNOWN",
    "Gaps",
    "busy",
    "busy_ns",
    "copying_ns",
    "device_work",
    "every_gap",
    "gaps",
    "profilers_own",
    "steady_span_ns",
    "steady_spans_ns",
]


@fact
def busy(trace: Trace) -> dict[int, Intervals]:
    """Union of all operations of each device, by row in devices."""
    done = operations(trace)
    return {
        int(device): intervals.union(
            done.start_ns[done.device == device], done.end_ns[done.device == device]
        )
        for device in groups.different(done.device)
    }


def busy_ns(trace: Trace, chosen: Mask) -> int:
    """Time covered by the chosen operations."""
    done = operations(trace)
    return intervals.union(done.start_ns[chosen], done.end_ns[chosen]).total()


class Work(NamedTuple):
    """Time in which a device was busy with selected operations: all of it, and after set-up."""

    all_ns: int
    steady_ns: int


@fact
def device_work(trace: Trace) -> dict[int, Work]:
    """The work of each device that has some, by row in devices."""
    done, chosen = operations(trace), selected_operations(trace)
    warm, found = operations_in_warm_up_ranges(trace), {}
    for device in groups.different(done.device[chosen]).tolist():
        rows = np.flatnonzero(chosen & (done.device == device))
        start, end = done.start_ns[rows], done.end_ns[rows]
        steady = int(np.searchsorted(start, warm_up_end_ns(trace)))
        kept: slice | Mask = slice(None) if warm is None else ~warm[rows[steady:]]
        later = intervals.union(start[steady:][kept], end[steady:][kept])
        found[device] = Work(intervals.union(start, end).total(), later.total())
    return found


def copying_ns(trace: Trace, device: int) -> int:
    """Time after set-up in which a device did nothing but copy; of all time if that is set-up.

    0 if copies, other work beside them or not, took less than half of the time of its work.
    """
    done, chosen, work = operations(trace), selected_operations(trace), device_work(trace)[device]
    rows = np.flatnonzero(done.kind == Kind.COPY)
    rows = rows[chosen[rows] & (done.device[rows] == device)]
    if work.steady_ns:
        rows = rows[~operations_in_warm_up(trace)[rows]]
    copies = intervals.union(done.start_ns[rows], done.end_ns[rows])
    if 2 * copies.total() < (work.steady_ns or work.all_ns):
        return 0
    others = np.flatnonzero(chosen & (done.device == device) & (done.kind != Kind.COPY))
    beside = intervals.union(done.start_ns[others], done.end_ns[others])
    return copies.total() - int(intervals.overlap(beside, *copies).sum())


@fact
def steady_spans_ns(trace: Trace) -> dict[int, int]:
    """Busy and idle time of each device, set-up and first uses left out.

    What a finding puts at stake is a share of this: in a short recording the seconds of set-up
    would make every other loss look small.
    """
    found = gaps(trace)
    return {
        device: work.steady_ns
        + int(found.idle_ns[(found.device == device) & ~found.one_time].sum())
        for device, work in device_work(trace).items()
    }


def steady_span_ns(trace: Trace) -> int:
    """The same of all devices together."""
    return sum(steady_spans_ns(trace).values())


@dataclass(frozen=True)
class Gaps:
    """One row an idle gap of a device.

    `before` and `after` are the operations around it, `cause` an index into CAUSES, `wait` the
    row in waits that a sync-drain is due to, else −1. `call` is the launch call of `after` (−1:
    not recorded), made by `thread` at `asked_ns`; at `queued_ns` its work was queued. `behind` is
    the operation that queued work stood behind, −1 where there is none; `by_event` says whether
    through an event. `one_time` is True for what a longer run does not repeat: first uses of
    kernels, the first pinned memory of a process, and set-up (with what is launched in ranges
    named warm_up).
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers
    cause: Array
    wait: Integers
    call: RowNumbers
    thread: Array
    asked_ns: Integers
    queued_ns: Integers
    behind: RowNumbers
    by_event: Mask
    one_time: Mask

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def idle_ns(self) -> Integers:
        return self.end_ns - self.start_ns

    def take(self, chosen: Array) -> Gaps:
        """The gaps of a mask or of row numbers."""
        return Gaps(*(getattr(self, field.name)[chosen] for field in fields(self)))


def _before_warm_up(trace: Trace) -> Mask:
    """True for the gaps that work of a range named warm_up ended."""
    warm, after = operations_in_warm_up_ranges(trace), edges(trace).after
    return np.zeros(len(after), bool) if warm is None else warm[after]


@fact
def every_gap(trace: Trace) -> Gaps:
    """All idle gaps of all devices, whatever is selected."""
    gap, why, made, stood = edges(trace), reasons(trace), launches(trace), behind(trace)
    return Gaps(
        device=gap.device,
        start_ns=gap.start_ns,
        end_ns=gap.end_ns,
        before=gap.before,
        after=gap.after,
        cause=why.cause,
        wait=why.wait,
        call=made.call,
        thread=made.thread,
        asked_ns=made.asked_ns,
        queued_ns=made.queued_ns,
        behind=stood.operation,
        by_event=stood.by_event,
        one_time=why.first_use | (gap.start_ns < warm_up_end_ns(trace)) | _before_warm_up(trace),
    )


@fact
def gaps(trace: Trace) -> Gaps:
    """The idle gaps that selected work ended.

    As the idle time of a step is what comes before its work, so is that of a selection. Each gap
    is ended by one operation, so selections that share no work share no gap, and the gaps of a
    selection and of all the rest are those of the whole.
    """
    every = every_gap(trace)
    if not trace.selection:
        return every
    return every.take(selected_operations(trace)[every.after])
