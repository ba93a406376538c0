"""What limits a device: the GPU itself, or the way the CPU feeds it; and launch calls that
are held up.
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Integers, Mask, RowNumbers, row_numbers
from traceview.base.vocabulary.causes import CAUSES, DEPENDENCY, LAUNCH_LATE, SYNC_DRAIN
from traceview.traces.facts import launches, operations
from traceview.traces.facts.idle.causes import OWN_WORK_NS
from traceview.traces.facts.idle.gaps import Gaps, device_work, every_gap, gaps, unknown_idle
from traceview.traces.facts.ranges.selection import selected, selected_calls, selected_operations
from traceview.traces.facts.steps.steps import operations_in_warm_up, steps
from traceview.traces.trace import Trace, fact

IDLE_PCT = 10.0
"""A device that runs dry for less than this share of the time counts as kept busy, as in the
verdict: three public recordings in which a GPU idled for 7.6 to 8.7 % were limited by its work."""
BOUND_PCT = 25.0
"""Up to that, a device that runs dry still works most of the time: nothing but its work bounds it.
Public recordings idle for 11.6 % beside kernels of 1 ms, and for 23 % beside the upsampling of
masks: their remedy is the kernels."""
DRAINED_PCT, OFTEN_DRAINED_PCT = 1.0, 5.0
"""A device that synchronizations in each step drain for less than that counts as kept busy, too,
and so does one that any synchronizations drain for less than the second."""


def verdict(trace: Trace, device: int) -> str:
    """The verdict on a device with selected work: `gpu-bound`, `launch-bound` …

    `unknown` where work was lost, or where the program only loaded its data.
    """
    return _verdicts(trace)[device]


@fact
def _verdicts(trace: Trace) -> dict[int, str]:
    every, result = gaps(trace), {}
    for device in device_work(trace):
        once = every.one_time[every.device == device]
        kinds = operations.operations(trace).kind[operations.operations_by_device(trace)[device]]
        kernels = np.isin(kinds, (operations.Kind.KERNEL, operations.Kind.GRAPH)).sum()
        # A device that ran at most one kernel, and sat idle only before that.
        only_loads = len(once) and once.all() and kernels <= 1
        if device in unknown_idle(trace) or only_loads:
            result[device] = "unknown"
            continue
        steady = counted_gaps(trace, device, every)
        idle_ns = every.by_cause(steady)
        drained, full_ns = drained_in_steps(trace, device), queue_full_ns(trace, device)
        result[device] = judge(idle_ns, work_ns(trace, device), drained, full_ns)
    return result


def judge(idle_ns: Integers, work_ns: int, drained_steps: bool, queue_full_ns: int) -> str:
    """The verdict from steady idle time by cause (an entry for each of CAUSES) and busy time.

    A GPU that sits idle for the verdict's causes has that of most of its idle time from BOUND_PCT
    on; from IDLE_PCT on it is mixed, unless synchronizations make most of it.
    `drained_steps` is True where a synchronization lets the GPU run dry in at least half of the
    steps; elsewhere synchronizations count from OFTEN_DRAINED_PCT on.
    """
    total_ns = int(idle_ns.sum())
    dry_ns, held_ns = total_ns - int(idle_ns[DEPENDENCY]), int(idle_ns[DEPENDENCY])
    span_ns = total_ns + work_ns
    idle_pct, drained = 100.0 * max(dry_ns, held_ns) / max(span_ns, 1), CAUSES[SYNC_DRAIN].verdict
    if idle_pct > IDLE_PCT:
        most = of_idle_time(idle_ns)
        return most if idle_pct > BOUND_PCT or most == drained else "mixed"
    if drained_steps or int(idle_ns[SYNC_DRAIN]) > OFTEN_DRAINED_PCT / 100.0 * span_ns:
        return drained
    return "queue-full" if queue_full_ns else "gpu-bound"


def of_idle_time(idle_ns: Integers) -> str:
    """The verdict whose causes have more than half of the idle time, else `mixed`."""
    by_verdict: dict[str, int] = {}
    for cause, time_ns in zip(CAUSES, idle_ns.tolist(), strict=True):
        by_verdict[cause.verdict] = by_verdict.get(cause.verdict, 0) + time_ns
    verdict = max(by_verdict, key=by_verdict.__getitem__)
    return verdict if 2 * by_verdict[verdict] > int(idle_ns.sum()) else "mixed"


def steady_idle_pct(trace: Trace, device: int) -> float | None:
    """Idle share of a device's time after warm-up, without first uses.

    None if nothing ran then, or where lost work leaves it unknown.
    """
    if not device_work(trace)[device].steady_ns or device in unknown_idle(trace):
        return None
    every = gaps(trace)
    idle_ns = int(every.idle_ns[counted_gaps(trace, device, every)].sum())
    return 100.0 * idle_ns / max(work_ns(trace, device) + idle_ns, 1)


def work_ns(trace: Trace, device: int) -> int:
    """Busy time of a device with selected work after warm-up; with all selected work if none is."""
    work = device_work(trace)[device]
    return work.steady_ns or work.all_ns


def counted_gaps(trace: Trace, device: int, gaps: Gaps) -> Mask:
    """True for the gaps of a device that the verdict counts: the steady ones, if any work is."""
    on_device: Mask = gaps.device == device
    return on_device & ~gaps.one_time if device_work(trace)[device].steady_ns else on_device


def queue_full_ns(trace: Trace, device: int) -> int:
    """Time that calls which enqueued work on a device waited for room in a full launch queue."""
    ops, full = operations.operations(trace), launches.queue_full(trace)
    if not full.by_thread:
        return 0
    calls = groups.different(ops.call[(ops.device == device) & ops.launched])
    return int(full.held_ns[calls[selected_calls(trace)[calls]]].sum())


def drained_in_steps(trace: Trace, device: int) -> bool:
    """Whether a synchronization lets the GPU run dry in at least half of the selected steps.

    False below DRAINED_PCT of the time: a loop that reads its loss loses a little.
    """
    every, of = every_gap(trace), steps(trace)
    counted = counted_gaps(trace, device, every)
    by_sync = counted & (every.cause == SYNC_DRAIN)
    span_ns = work_ns(trace, device) + int(every.idle_ns[counted].sum())
    if 100.0 * int(every.idle_ns[by_sync].sum()) < DRAINED_PCT * span_ns:
        return False
    drained = np.sort(every.start_ns[by_sync])
    chosen = selected(trace, of.process, of.cpu_start_ns)
    before = np.searchsorted(drained, of.cpu_start_ns)
    after = np.searchsorted(drained, of.cpu_end_ns)
    hits = np.bincount(of.series[chosen & (after > before)])
    every_step = np.bincount(of.series[chosen])[: len(hits)]
    return bool(((hits > 0) & (2 * hits >= every_step)).any())


def copying_ns(trace: Trace, device: int) -> int:
    """Time after warm-up in which a device did nothing but copy; of all time if nothing ran then.

    0 if copies, with or without other work beside them, took less than half of its busy time.
    """
    ops, chosen = operations.operations(trace), selected_operations(trace)
    rows = np.flatnonzero(ops.kind == operations.Kind.COPY)
    rows = rows[chosen[rows] & (ops.device[rows] == device)]
    if device_work(trace)[device].steady_ns:
        rows = rows[~operations_in_warm_up(trace)[rows]]
    copies = intervals.covered(ops, rows)
    if 2 * copies.total() < work_ns(trace, device):
        return 0
    others = np.flatnonzero(chosen & (ops.device == device) & (ops.kind != operations.Kind.COPY))
    beside = intervals.covered(ops, others)
    return copies.total() - int(intervals.overlap(beside, *copies).sum())


@record
class LongLaunches:
    """Launch calls (rows in api_calls) of more than OWN_WORK_NS in which a device sat idle.

    `part` is True for the rows of gaps that were spent in them: steady idle time of late launches,
    `idle_ns` in all. `is_most` says whether that is most of it.
    """

    calls: RowNumbers
    part: Mask
    idle_ns: int
    is_most: bool


@fact
def long_launches(trace: Trace) -> dict[int, LongLaunches]:
    """The long launch calls of each device (row in devices) that idled for late launches."""
    every, calls = gaps(trace), operations.api_calls(trace)
    late = (every.cause == LAUNCH_LATE) & ~every.one_time
    long = np.append(
        (calls.does == operations.CallKind.LAUNCH) & (calls.duration_ns > OWN_WORK_NS), False
    )
    result = {}
    for device in groups.different(every.device[late]).tolist():
        own = late & (every.device == device)
        part = own & long[every.within]
        idle_ns, all_ns = int(every.idle_ns[part].sum()), int(every.idle_ns[own].sum())
        of_calls = row_numbers(groups.different(every.within[part]))
        result[device] = LongLaunches(of_calls, part, idle_ns, 2 * idle_ns > all_ns)
    return result
