"""When each device was busy, its idle gaps, and the cause of each gap.

A gap ends when new work starts, so its cause is why that work did not start earlier. The evidence
is the launch call of that work and what the CPU did meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import intervals
from traceview.facts.cuda_api import Does
from traceview.facts.operations import first_launches, operations
from traceview.facts.selection import selected_operations
from traceview.facts.waits import Waits, waits
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

CAUSES = {
    "launch-late": "nothing was queued: the CPU made the launch call after the GPU ran dry",
    "sync-drain": "the GPU ran dry during a synchronization, and the CPU launched only after it",
    "dependency": "work was queued already: it waited for another stream, a copy or an event, or "
    "the GPU took that long to go on to it",
    "module-load": "the work was a first launch, and the CPU loaded code or a library for it",
    "allocation": "the CPU was allocating or freeing memory",
    "profiler": "the profiler held the CPU",
    "unknown": "the launch call of the work that ended the gap was not recorded",
}
LAUNCH_LATE, SYNC_DRAIN, DEPENDENCY, MODULE_LOAD, ALLOCATION, PROFILER, UNKNOWN = range(7)
ONE_TIME = (MODULE_LOAD,)
"""Causes that a longer run does not repeat."""

LAZY_LOAD_NS = 200_000
"""A first launch that lasts longer than this loads code; later launches take some 5 µs."""


@fact
def busy(trace: Trace) -> dict[int, Intervals]:
    """Union of all operations of each device, by row in devices."""
    done = operations(trace)
    return {
        int(device): intervals.union(
            done.start_ns[done.device == device], done.end_ns[done.device == device]
        )
        for device in np.unique(done.device)
    }


def busy_ns(trace: Trace, chosen: Mask) -> int:
    """Time covered by the chosen operations."""
    done = operations(trace)
    return intervals.union(done.start_ns[chosen], done.end_ns[chosen]).total()


@fact
def steady_span_ns(trace: Trace) -> int:
    """Busy and idle time of all devices together, one-time loading left out.

    What a finding puts at stake is a share of this: in a short recording the seconds of loading
    would make every other loss look small.
    """
    done, found = operations(trace), gaps(trace)
    chosen = selected_operations(trace)
    work = sum(busy_ns(trace, chosen & (done.device == d)) for d in np.unique(done.device))
    return work + int(found.idle_ns[~found.one_time].sum())


@dataclass(frozen=True)
class Gaps:
    """One row an idle gap of a device, of the selected work.

    `before` and `after` are the operations around it, `cause` an index into CAUSES, `wait` the
    row in waits that a sync-drain is due to, else −1.
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers
    cause: Array
    wait: Integers

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def idle_ns(self) -> Integers:
        return self.end_ns - self.start_ns

    @property
    def one_time(self) -> Mask:
        return np.isin(self.cause, ONE_TIME)


@fact
def gaps(trace: Trace) -> Gaps:
    """Idle gaps between selected operations; both neighbours of a gap must be selected."""
    done = operations(trace)
    chosen = selected_operations(trace)
    parts = [_between(done.start_ns, done.end_ns, done.device == d) for d in np.unique(done.device)]
    before = np.concatenate([part[0] for part in parts] or [np.zeros(0, np.int64)])
    after = np.concatenate([part[1] for part in parts] or [np.zeros(0, np.int64)])
    both = chosen[before] & chosen[after]
    before, after = before[both], after[both]
    start, end = done.end_ns[before], done.start_ns[after]
    cause, wait = _causes(trace, start, end, after)
    return Gaps(done.device[after], start, end, before, after, cause, wait)


def _between(start: Integers, end: Integers, mine: Mask) -> tuple[Integers, Integers]:
    """The operation that ended last before each gap of one device, and the one that ends it."""
    rows = np.flatnonzero(mine & (end > start))
    if not len(rows):
        return rows, rows
    reach = np.maximum.accumulate(end[rows])
    latest = np.maximum.accumulate(np.where(end[rows] == reach, np.arange(len(rows)), 0))
    opens = np.flatnonzero(start[rows][1:] > reach[:-1])
    return rows[latest[opens]], rows[opens + 1]


def _causes(
    trace: Trace, start: Integers, end: Integers, after: Integers
) -> tuple[Array, Integers]:
    done = operations(trace)
    calls = trace.recorded("api_calls")
    call = done.call[after]
    known = call >= 0
    process = done.process[after]
    launch_end = np.where(known, calls["end_ns"][call] if len(calls) else start, start)
    late = known & (launch_end > start)
    wait = _draining(waits(trace), process, start)
    half = (end - start) // 2
    loading = _loads(trace, start, end, after, process)
    allocating = _spent(waits(trace), process, [Does.ALLOCATE], start, end) > half
    checks = (
        (~known, UNKNOWN),
        (~late, DEPENDENCY),
        (loading, MODULE_LOAD),
        (wait >= 0, SYNC_DRAIN),
        (allocating, ALLOCATION),
        (_profiled(trace, process, start, end) > half, PROFILER),
    )
    cause = np.select([test for test, _ in checks], [name for _, name in checks], LAUNCH_LATE)
    return cause.astype(np.uint8), np.where(cause == SYNC_DRAIN, wait, -1)


def _draining(waited: Waits, process: Array, time: Integers) -> Integers:
    """The synchronization in which the CPU of a process stood at each time, or −1.

    Of several threads that wait at once, the one that waits longest: it is the last to launch.
    """
    found = np.full(len(time), -1, np.int64)
    drains = np.isin(waited.does, [Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC])
    for number in np.unique(process):
        rows = np.flatnonzero(drains & (waited.process == number))
        asked = np.flatnonzero(process == number)
        if not len(rows):
            continue
        reach = np.maximum.accumulate(waited.end_ns[rows])
        longest = np.maximum.accumulate(
            np.where(waited.end_ns[rows] == reach, np.arange(len(rows)), 0)
        )
        begun = np.searchsorted(waited.start_ns[rows], time[asked], side="left") - 1
        stands = (begun >= 0) & (reach[np.maximum(begun, 0)] >= time[asked])
        found[asked] = np.where(stands, rows[longest[np.maximum(begun, 0)]], -1)
    return found


def _spent(
    waited: Waits, process: Array, does: list[Does], start: Integers, end: Integers
) -> Integers:
    """How much of each [start, end) the CPU of that process spent in calls of that sort."""
    spent = np.zeros(len(start), np.int64)
    kind = np.isin(waited.does, does)
    for number in np.unique(process):
        mine = kind & (waited.process == number)
        asked = process == number
        covered = intervals.union(waited.start_ns[mine], waited.end_ns[mine])
        spent[asked] = intervals.overlap(covered, start[asked], end[asked])
    return spent


def _loads(trace: Trace, start: Integers, end: Integers, after: Integers, process: Array) -> Mask:
    """Was code loaded for the work that ended the gap?

    It was where loading calls fill a quarter of the gap, or where the work is a first launch and
    code was loaded in the gap, by a call or by the launch itself (lazy loading).
    """
    loading = _spent(waits(trace), process, [Does.LOAD], start, end)
    calls = trace.recorded("api_calls")
    first = first_launches(trace)[after]
    call = np.maximum(operations(trace).call[after], 0)
    inside = np.zeros(len(start), np.int64)
    if len(calls):
        inside = np.minimum(end, calls["end_ns"][call]) - np.maximum(start, calls["start_ns"][call])
    lazily = first & (inside > LAZY_LOAD_NS)
    result: Mask = (4 * loading > end - start) | (first & (loading > 0)) | lazily
    return result


def _profiled(trace: Trace, process: Array, start: Integers, end: Integers) -> Integers:
    """How much of each [start, end) the profiler took in that process."""
    overheads = trace.recorded("overheads")
    own = overheads.texts("kind").isin(["profiler", "cupti"])
    # dlopen is listed as an overhead of the profiler and is the program's own loading.
    own &= ~_starts(overheads.texts("name").values, "dlopen")[overheads.texts("name").codes]
    spent = np.zeros(len(start), np.int64)
    for number in np.unique(process):
        mine = own & (overheads["process"] == number)
        asked = process == number
        covered = intervals.union(overheads["start_ns"][mine], overheads["end_ns"][mine])
        spent[asked] = intervals.overlap(covered, start[asked], end[asked])
    return spent


def _starts(values: Array, prefix: str) -> Mask:
    return np.array([str(value).startswith(prefix) for value in values] or [False], bool)
