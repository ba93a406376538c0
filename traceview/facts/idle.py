"""When each device was busy, its idle gaps, and the cause of each gap.

A gap ends when new work starts, so its cause is why that work did not start earlier. The evidence
is the launch call of that work and what the CPU did meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from traceview import intervals
from traceview.facts.cuda_api import Does, what_calls_do
from traceview.facts.operations import first_launches, operations
from traceview.facts.selection import selected_calls, selected_operations
from traceview.facts.steps import set_up_end_ns
from traceview.facts.waits import Waits, waits
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

CAUSES = {
    "launch-late": "nothing was queued: the CPU made the launch call after the GPU ran dry",
    "sync-drain": "the GPU ran dry during a synchronization, and the CPU launched only after it",
    "dependency": "work was queued already: it waited for another stream, a copy or an event, or "
    "the GPU took that long to go on to it",
    "module-load": "the CPU spent most of it loading code for the GPU",
    "warm-up": "the work was the first launch of its kernel, and code was loaded for it on the way",
    "allocation": "the CPU was allocating or freeing memory",
    "profiler": "the profiler held the CPU",
    "unknown": "the launch call of the work that ended the gap was not recorded",
}
(LAUNCH_LATE, SYNC_DRAIN, DEPENDENCY, MODULE_LOAD, WARM_UP, ALLOCATION, PROFILER, UNKNOWN) = range(
    8
)
FIRST_USE = (MODULE_LOAD, WARM_UP)
"""Causes that come with the first use of a kernel: a longer run does not repeat them."""

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
    """Busy and idle time of all devices together, set-up and first uses left out.

    What a finding puts at stake is a share of this: in a short recording the seconds of set-up
    would make every other loss look small.
    """
    done, found = operations(trace), gaps(trace)
    chosen = selected_operations(trace) & (done.start_ns >= set_up_end_ns(trace))
    work = sum(busy_ns(trace, chosen & (done.device == d)) for d in np.unique(done.device))
    return work + int(found.idle_ns[~found.one_time].sum())


@dataclass(frozen=True)
class Gaps:
    """One row an idle gap of a device, of the selected work.

    `before` and `after` are the operations around it, `cause` an index into CAUSES, `wait` the
    row in waits that a sync-drain is due to, else −1.
    `one_time` is True for what a longer run does not repeat: first uses, and
    set-up.
    """

    device: Array
    start_ns: Integers
    end_ns: Integers
    before: Integers
    after: Integers
    cause: Array
    wait: Integers
    one_time: Mask

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def idle_ns(self) -> Integers:
        return self.end_ns - self.start_ns

    def take(self, chosen: Mask) -> Gaps:
        """The gaps of a mask."""
        return Gaps(*(getattr(self, field.name)[chosen] for field in fields(self)))


@fact
def gaps(trace: Trace) -> Gaps:
    """Idle gaps between selected operations, and those that a selected synchronization caused."""
    done = operations(trace)
    chosen = selected_operations(trace)
    parts = [_between(done.start_ns, done.end_ns, done.device == d) for d in np.unique(done.device)]
    before = np.concatenate([part[0] for part in parts] or [np.zeros(0, np.int64)])
    after = np.concatenate([part[1] for part in parts] or [np.zeros(0, np.int64)])
    start, end = done.end_ns[before], done.start_ns[after]
    cause, wait = _causes(trace, start, end, after)
    one_time = np.isin(cause, FIRST_USE) | (start < set_up_end_ns(trace))
    found = Gaps(done.device[after], start, end, before, after, cause, wait, one_time)
    caused = np.zeros(len(found), bool)
    caused[wait >= 0] = selected_calls(trace)[waits(trace).call[wait[wait >= 0]]]
    return found.take((chosen[before] & chosen[after]) | caused)


def _between(start: Integers, end: Integers, mine: Mask) -> tuple[Integers, Integers]:
    """The operation that ended last before each gap of one device, and the one that ends it."""
    rows = np.flatnonzero(mine & (end > start))
    if not len(rows):
        return rows, rows
    latest = _reaching(end[rows])
    opens = np.flatnonzero(start[rows][1:] > end[rows][latest][:-1])
    return rows[latest[opens]], rows[opens + 1]


def _causes(
    trace: Trace, start: Integers, end: Integers, after: Integers
) -> tuple[Array, Integers]:
    done = operations(trace)
    call = done.call[after]
    process = done.process[after]
    asked, returned = _launch(trace, call, start)
    wait = _draining(waits(trace), process, done.device[after], start, asked)
    loading, lazily = _loading(trace, start, end, after)
    first = first_launches(trace)[after]
    half = (end - start) // 2
    checks = (
        (call < 0, UNKNOWN),
        (returned <= start, DEPENDENCY),
        (loading > half, MODULE_LOAD),
        (first & ((loading > 0) | lazily), WARM_UP),
        (wait >= 0, SYNC_DRAIN),
        (_spent(waits(trace), process, [Does.ALLOCATE], start, end) > half, ALLOCATION),
        (_profiled(trace, process, start, end) > half, PROFILER),
    )
    cause = np.select([test for test, _ in checks], [name for _, name in checks], LAUNCH_LATE)
    return cause.astype(np.uint8), np.where(cause == SYNC_DRAIN, wait, -1)


def _launch(trace: Trace, call: Integers, absent: Integers) -> tuple[Integers, Integers]:
    """When the launch call of each operation was made, and when it had queued the work.

    A call that copies and waits has queued its copy long before it returns.
    """
    calls = trace.recorded("api_calls")
    if not len(calls):
        return absent, absent
    known, row = call >= 0, np.maximum(call, 0)
    made, returned = calls["start_ns"][row], calls["end_ns"][row]
    copies = np.isin(what_calls_do(trace)[row], [Does.COPY, Does.COPY_ASYNC])
    queued = np.where(copies, made, returned)
    return np.where(known, made, absent), np.where(known, queued, absent)


def _draining(
    waited: Waits, process: Array, device: Array, time: Integers, until: Integers
) -> Integers:
    """The synchronization that a process stood in at each time and had left `until` then, or −1.

    A thread that still waits when the next launch is made did not hold that launch up; nor did
    one that waits for another device. Of several, the one that returned last counts.
    """
    found = np.full(len(time), -1, np.int64)
    drains = np.isin(waited.does, [Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC])
    for thread in np.unique(waited.thread[drains]):
        rows = np.flatnonzero(drains & (waited.thread == thread))
        asked = np.flatnonzero(process == waited.process[rows[0]])
        begun = np.searchsorted(waited.start_ns[rows], time[asked], side="left") - 1
        last = rows[_reaching(waited.end_ns[rows])[np.maximum(begun, 0)]]
        held = (begun >= 0) & (waited.end_ns[last] >= time[asked])
        held &= waited.end_ns[last] <= until[asked]
        held &= (waited.device[last] < 0) | (waited.device[last] == device[asked])
        before = found[asked]
        held &= (before < 0) | (waited.end_ns[last] > waited.end_ns[np.maximum(before, 0)])
        found[asked] = np.where(held, last, before)
    return found


def _reaching(end: Integers) -> Integers:
    """For each place, the one up to there that ends last."""
    latest = end == np.maximum.accumulate(end)
    return np.maximum.accumulate(np.where(latest, np.arange(len(end)), 0))


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


def _loading(
    trace: Trace, start: Integers, end: Integers, after: Integers
) -> tuple[Integers, Mask]:
    """How much of each gap the CPU loaded code, and whether the launch itself did (lazily)."""
    done = operations(trace)
    loads = [Does.LOAD, Does.LOOK_UP]
    loading = _spent(waits(trace), done.process[after], loads, start, end)
    calls = trace.recorded("api_calls")
    if not len(calls):
        return loading, np.zeros(len(start), bool)
    call = np.maximum(done.call[after], 0)
    inside = np.minimum(end, calls["end_ns"][call]) - np.maximum(start, calls["start_ns"][call])
    lazily = first_launches(trace)[after] & (inside > LAZY_LOAD_NS)
    return loading + np.where(lazily, inside, 0), lazily


def _profiled(trace: Trace, process: Array, start: Integers, end: Integers) -> Integers:
    """How much of each [start, end) the profiler took in that process."""
    overheads = trace.recorded("overheads")
    own = profilers_own(trace)
    spent = np.zeros(len(start), np.int64)
    for number in np.unique(process):
        mine = own & (overheads["process"] == number)
        asked = process == number
        covered = intervals.union(overheads["start_ns"][mine], overheads["end_ns"][mine])
        spent[asked] = intervals.overlap(covered, start[asked], end[asked])
    return spent


def profilers_own(trace: Trace) -> Mask:
    """True for the overheads that are the profiler's own cost.

    nsys lists each dlopen of the program among them, which is the program's own loading.
    """
    overheads = trace.recorded("overheads")
    names = overheads.texts("name")
    loading = [str(name) for name in names.values if str(name).startswith("dlopen")]
    result: Mask = overheads.texts("kind").isin(["profiler", "cupti"]) & ~names.isin(loading)
    return result
