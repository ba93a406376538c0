"""The cause of each idle gap: why the work that ended it did not start earlier.

The evidence is the launch call of that work, what the work waited behind on the GPU, and what the
launching thread did meanwhile. CPU time counts as the cause only if it fills more than half of the
gap on that very thread: what other threads did need not have delayed the launch.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle import lost_work, stream_order
from traceview.facts.idle.gap_bounds import (
    GapBounds,
    GapLaunches,
    gap_bounds,
    gap_launches,
    latest_so_far,
    time_in_calls,
    time_on_thread,
)
from traceview.facts.operations import copies
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.cuda_api import (
    ApiCalls,
    CallKind,
    api_calls,
    graph_launch_calls,
)
from traceview.facts.operations.operations import (
    Kind,
    Operations,
    calls_that_enqueue,
    first_launch_calls,
    first_launches,
    operations,
)
from traceview.facts.phases.compilation import compiling
from traceview.records import record
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact, fact_without_ranges
from traceview.vocabulary import causes

LAZY_LOAD_NS = 200_000
"""A first launch that lasts longer than this loads code; later launches take some 5 µs."""
STARTS_WITHIN_NS = 50_000
"""Work launched onto an idle GPU starts within this time unless something else holds it back: on
an H200 within 5 µs of the call's return in each of some 1,500 launches."""
_PINS = re.compile(r"(cudaHostAlloc|cudaMallocHost|cuMemHostAlloc|cuMemAllocHost)$")


@record
class CpuTime:
    """Time within each gap that the launching thread spent per activity, in ns; one row per gap.

    `staging_ns`: a copy call moved bytes out of pageable memory before the copy ran. `pinning_ns`:
    the process allocated its first pinned memory; part of `allocating_ns`. `jit_ns`: the driver
    compiled PTX; part of `loading_ns`. `graph_ns` is 0 for gaps that no graph ended. The
    profiler's own cost may overlap any other column.
    """

    staging_ns: Integers
    graph_ns: Integers
    jit_ns: Integers
    loading_ns: Integers
    allocating_ns: Integers
    pinning_ns: Integers
    profiler_ns: Integers


@record
class GapCauses:
    """The cause of each gap as an index into CAUSES, one row per gap.

    `wait` is the row in `waits` that caused a sync-drain, −1 for other causes. `first_use` is True
    where code was loaded, or where a process allocated its first pinned memory.
    """

    cause: Array
    wait: Integers
    first_use: Mask


@fact
def gap_causes(trace: Trace) -> GapCauses:
    gaps, launches, ops = gap_bounds(trace), gap_launches(trace), operations(trace)
    calls, cpu = api_calls(trace), cpu_time(trace)
    drain = find_drains(gaps, launches, waits(trace), calls, calls_that_enqueue(ops, len(calls)))
    behind_copy = ended_behind_copy(gaps, launches, stream_order.predecessors(trace), ops)
    cause = classify(gaps, launches, behind_copy, drain, cpu)
    late = np.isin(cause, (causes.LAUNCH_LATE, causes.SYNC_DRAIN))
    cause[late & compiling(trace, gaps.start_ns, gaps.end_ns)] = causes.COMPILATION
    cause[lost_work.hold_lost_work(trace, gaps)] = causes.LOST_WORK
    first = first_launches(trace)[gaps.after] & (cpu.loading_ns > 0) & launches.known
    first |= (cause == causes.ALLOCATION) & (cpu.pinning_ns > gaps.idle_ns // 2)
    return GapCauses(
        cause=cause,
        wait=np.where(cause == causes.SYNC_DRAIN, drain, -1),
        first_use=first | (cause == causes.MODULE_LOAD) | (cause == causes.JIT_COMPILE),
    )


def classify(
    gaps: GapBounds, launches: GapLaunches, behind_copy: Mask, drain: Integers, cpu: CpuTime
) -> Array:
    """The cause of each gap, as indices into CAUSES (uint8).

    The first rule that applies counts. Work was queued in time if its call returned before the
    gap, or if it started later after its call than a launch on an idle GPU takes.
    """
    half = gaps.idle_ns // 2
    held_ns = gaps.end_ns - launches.queued_ns
    queued = launches.queued_ns <= gaps.start_ns
    queued |= (held_ns > half) & (held_ns > STARTS_WITHIN_NS)
    rules = (
        (~launches.known, causes.UNKNOWN),
        (cpu.staging_ns > half, causes.COPY_WAIT),
        (queued & behind_copy, causes.COPY_WAIT),
        (queued, causes.DEPENDENCY),
        (cpu.graph_ns > half, causes.GRAPH_LAUNCH),
        (cpu.jit_ns > half, causes.JIT_COMPILE),
        (cpu.loading_ns > half, causes.MODULE_LOAD),
        (cpu.allocating_ns > half, causes.ALLOCATION),
        (cpu.profiler_ns > half, causes.PROFILER),
        (drain >= 0, causes.SYNC_DRAIN),
    )
    cause = np.select([test for test, _ in rules], [name for _, name in rules], causes.LAUNCH_LATE)
    return cause.astype(np.uint8)


def ended_behind_copy(
    gaps: GapBounds, launches: GapLaunches, behind: stream_order.Predecessors, ops: Operations
) -> Mask:
    """True for the gaps whose next work waited behind a copy.

    The copy ended within the gap, after that work was queued.
    """
    known = behind.operation >= 0
    before = np.where(known, behind.operation, gaps.after)
    ended = ops.end_ns[before] >= np.maximum(gaps.start_ns, launches.queued_ns)
    result: Mask = known & (ops.kind[before] == Kind.COPY) & ended
    return result


@fact_without_ranges
def cpu_time(trace: Trace) -> CpuTime:
    gaps, launches, calls = gap_bounds(trace), gap_launches(trace), api_calls(trace)

    def spent_in(chosen: Mask) -> Integers:
        return time_in_calls(gaps, launches, calls, chosen)

    launching = graph_launch_calls(trace)
    graph_ns = spent_in(launching | (calls.does == CallKind.GRAPH))
    by_graph = launches.known & launching[launches.call] if len(calls) else launches.known
    overheads = trace.recorded("overheads")
    by_profiler = profiler_overheads(trace) & ~overheads.is_null("thread")
    profiler = (overheads[name][by_profiler] for name in ("thread", "start_ns", "end_ns"))
    jit = trace.recorded("jit_compilations")
    # Loads from the driver's cache compile nothing.
    compiled = jit.take(jit.texts("operation").isin(["compile"]))
    lazy = first_launch_calls(trace) & (calls.duration_ns > LAZY_LOAD_NS)
    rows = np.flatnonzero(np.isin(calls.does, [CallKind.LOAD, CallKind.LOOK_UP]) | lazy)
    loading = (
        np.concatenate((getattr(calls, name)[rows], jit[name]))
        for name in ("thread", "start_ns", "end_ns")
    )
    return CpuTime(
        staging_ns=staging_time(gaps, launches, copies.pageable_uploads(trace)[gaps.after]),
        graph_ns=np.where(by_graph, graph_ns, 0),
        jit_ns=time_on_thread(
            gaps, launches, compiled["thread"], compiled["start_ns"], compiled["end_ns"]
        ),
        loading_ns=time_on_thread(gaps, launches, *loading),
        allocating_ns=spent_in(calls.does == CallKind.ALLOCATE),
        pinning_ns=spent_in(_first_pinning_calls(trace)),
        profiler_ns=time_on_thread(gaps, launches, *profiler),
    )


def staging_time(gaps: GapBounds, launches: GapLaunches, pageable: Mask) -> Integers:
    """Time of each gap that fell inside the call of a pageable upload, before the copy ran.

    `pageable` is True for the gaps that such a copy ended.
    """
    rows = np.flatnonzero(launches.known & pageable)
    end = np.minimum(gaps.end_ns[rows], launches.returned_ns[rows])
    begin = np.maximum(gaps.start_ns[rows], launches.issued_ns[rows])
    result = np.zeros(len(gaps), np.int64)
    result[rows] = np.maximum(end - begin, 0)
    return result


def _first_pinning_calls(trace: Trace) -> Mask:
    """True for the call by which each process first allocates pinned memory.

    Reading a result on the CPU for the first time allocates it implicitly. Pools keep pinned
    memory, so a loop that allocates more of it is not a first use.
    """
    calls = trace.recorded("api_calls")
    rows = np.flatnonzero(calls.texts("name").matching(_PINS.match))
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    _, first = np.unique(calls["process"][rows], return_index=True)
    result = np.zeros(len(calls), bool)
    result[rows[first]] = True
    return result


def profiler_overheads(trace: Trace) -> Mask:
    """True for the overheads that are the profiler's own cost.

    nsys lists each dlopen of the program among them, which is the program's own loading.
    """
    overheads = trace.recorded("overheads")
    loading = overheads.texts("name").matching(lambda name: name.startswith("dlopen"))
    return overheads.texts("kind").isin(["profiler", "cupti"]) & ~loading


# The synchronization that let the GPU run dry, for each idle gap.

RIGHT_AFTER_NS = 10_000
"""Time of about two launch calls: a thread that has just left a wait has queued nothing yet."""


def find_drains(
    gaps: GapBounds, launches: GapLaunches, waits: Waits, calls: ApiCalls, enqueuing: Mask
) -> Integers:
    """Row in waits of the synchronization that each gap began in or right after, or −1.

    `enqueuing` is True for the API calls that enqueued work.

    In: a thread of the process was inside the wait when the GPU ran dry, and had left it when the
    launch call was made. A wait that outlasts the launch call did not hold it up. Neither did one
    for another device, nor one of another thread while the launching thread kept making calls.

    Right after: the launching thread had left the wait for less than RIGHT_AFTER_NS, and the
    launch was the first work that it enqueued since. Of several waits, the last to return counts.

    Without the wait the launch could have been made earlier by as long as the wait lasted, and no
    more. So the wait is the cause if it is longer than half of the gap; otherwise the CPU was late
    anyway.
    """
    result = np.full(len(gaps), -1, np.int64)
    drains = np.isin(waits.does, [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC])
    gap, wait = _candidates(gaps, launches, waits, drains)
    holds = ~_thread_went_on(gaps, launches, waits, calls, enqueuing, gap, wait)
    gap, wait = gap[holds], wait[holds]
    # The last assignment to a gap wins: the last wait to return, the first of equal ones.
    order = np.lexsort((-np.arange(len(gap)), waits.end_ns[wait], gap))
    result[gap[order]] = wait[order]
    return result


def _candidates(
    gaps: GapBounds, launches: GapLaunches, waits: Waits, drains: Mask
) -> tuple[Integers, Integers]:
    """Pairs of a gap and a wait that may have caused it: one per thread of the gap's process."""
    of_process = groups.rows_of(launches.process)
    pairs = [(groups.NO_ROWS, groups.NO_ROWS)]
    for thread, rows in groups.rows_of(waits.thread).items():
        rows = rows[drains[rows]]
        process = int(waits.process[rows[0]]) if len(rows) else -1
        gap_rows = of_process.get(process, groups.NO_ROWS)
        gap_rows = gap_rows[launches.known[gap_rows]]
        if not len(gap_rows):
            continue
        start = gaps.start_ns[gap_rows]
        begun = np.searchsorted(waits.start_ns[rows], start, side="left") - 1
        wait = rows[latest_so_far(waits.end_ns[rows])[np.maximum(begun, 0)]]
        end = waits.end_ns[wait]
        holds = (begun >= 0) & (end <= launches.issued_ns[gap_rows])
        holds &= end >= np.where(launches.thread[gap_rows] == thread, start - RIGHT_AFTER_NS, start)
        holds &= end - waits.start_ns[wait] > gaps.idle_ns[gap_rows] // 2
        holds &= (waits.device[wait] < 0) | (waits.device[wait] == gaps.device[gap_rows])
        pairs.append((gap_rows[holds], wait[holds]))
    gap, wait = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return gap.astype(np.int64), wait.astype(np.int64)


def _thread_went_on(
    gaps: GapBounds,
    launches: GapLaunches,
    waits: Waits,
    calls: ApiCalls,
    enqueuing: Mask,
    gap: Integers,
    wait: Integers,
) -> Mask:
    """True where the launching thread enqueued work after the wait, or made calls during it."""
    result, thread, end = np.zeros(len(gap), bool), launches.thread[gap], waits.end_ns[wait]
    check = np.flatnonzero(end < gaps.start_ns[gap])
    enqueued = calls.thread[enqueuing], calls.start_ns[enqueuing]
    until = launches.issued_ns[gap[check]]
    result[check] = called_between(*enqueued, thread[check], end[check], until)
    check = np.flatnonzero(thread != waits.thread[wait])
    began = waits.start_ns[wait[check]]
    result[check] |= called_between(calls.thread, calls.start_ns, thread[check], began, end[check])
    return result


def called_between(
    call_thread: Array, call_ns: Integers, thread: Array, since: Integers, until: Integers
) -> Mask:
    """True for the (thread, since, until) where the thread made a call in [since, until)."""
    result = np.zeros(len(thread), bool)
    calls = groups.rows_of(call_thread) if len(thread) else {}
    for number, rows in groups.rows_of(thread).items():
        times = intervals.ascending(call_ns[calls[number]]) if number in calls else call_ns[:0]
        first = np.searchsorted(times, since[rows], side="left")
        result[rows] = first < np.searchsorted(times, until[rows], side="left")
    return result
