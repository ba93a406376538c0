"""The cause of each part of each idle gap, to the nanosecond.

A gap is walked back from its end along what held up the work that ended it (see
`facts.dependencies.blame`). Each part is one thing that the launching thread did, or that the work
waited for, and that alone is its cause. What other threads did counts where threads take turns.

Three things are laid over it. Where a synchronization let the GPU run dry, the ordinary work of
launching after it belongs to that wait: without it the launches would have been made earlier, by
as long as the wait lasted and no more. A pause or call longer than `OWN_WORK_NS` is no ordinary
work of launching; it stays what it is. And what falls into compilation is compilation, what falls
into migrations of unified memory is theirs (see facts.idle.page_migrations).
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, row_numbers
from traceview.base.vocabulary import causes
from traceview.traces.facts import compilation, copies, operations, pacing, python_events
from traceview.traces.facts.dependencies import blame, replay
from traceview.traces.facts.dependencies.blame import IdlePart
from traceview.traces.facts.dependencies.graph import Dependencies
from traceview.traces.facts.dependencies.recorded_graph import Walked, build, dependencies
from traceview.traces.facts.idle import gap_bounds
from traceview.traces.facts.idle.page_migrations import with_migrations
from traceview.traces.facts.launches import Waits, waits
from traceview.traces.trace import Trace, fact, fact_without_ranges

OWN_WORK_NS = replay.LONG_NS
"""A thread that stays longer outside of CUDA, or in one call, does something other than launch.
From the return of `loss.item()` to the first launch of the next step the Python of a training loop
takes 0.2 to 0.5 ms, and the GPU does not sit idle for it where nothing waits (measured with and
without the wait: reports/printing-the-loss)."""
WHOLE_GRAPH = 200_000
"""Operations of which the whole graph is built, which forecasts need, too."""
RIGHT_AFTER_NS = 10_000
"""Time of about two launch calls: a thread that has just left a wait has queued nothing yet."""
MOST_STAGING_NS = 500_000
"""A copy of pageable memory sets itself up before it runs: on an MI308X in 480 µs."""
_PINS = re.compile(r"(cudaHostAlloc|cudaMallocHost|cuMemHostAlloc|cuMemAllocHost)$")


@record
class GapCauses(gap_bounds.IdleTime):
    """Parts of idle gaps, one row per part, by gap and start: neighbours have different causes.

    `gap` is the row of gap_bounds, `cause` an index into CAUSES. `wait` is the row in `waits` that
    a sync-drain rests on, −1 for other causes. `call` is the row in api_calls of the call that the
    thread spent most of the part in, −1 outside of calls. `thread` is the one that held the work
    up, −1 where none is known. `first_use` is True where code was loaded, or where a process
    allocated its first pinned memory.
    """

    gap: RowNumbers
    start_ns: Integers
    end_ns: Integers
    cause: Array
    wait: Integers
    call: RowNumbers
    thread: Array
    first_use: Mask


@fact
def gap_causes(trace: Trace) -> GapCauses:
    gaps, graph = gap_bounds.gap_bounds(trace), idle_graph(trace)
    parts = idle_parts(trace)
    # The API call that each part was spent in, or −1, and the thread that held the work up.
    calls, known = operations.api_calls(trace), parts.item >= 0
    of_call = known & (parts.item < graph.calls)
    call = np.full(len(parts), -1, np.int32)
    call[of_call] = graph.call[parts.item[of_call]]
    thread = gap_bounds.gap_launches(trace).thread[parts.gap].astype(np.int64)
    thread[of_call] = calls.thread[call[of_call]]
    call[~np.isin(parts.kind, _IN_CALLS)] = -1
    cause = _causes(trace, graph, parts, call, thread)
    wait = find_drains(trace)[parts.gap]
    row, parts, cause = _with_drains(trace, parts, cause, wait)
    call, thread, wait = call[row], thread[row], wait[row]
    if operations.migrations(trace).any():
        does = np.append(operations.api_calls(trace).does, operations.CallKind.OTHER)[call]
        row, parts, cause = with_migrations(trace, parts, cause, gaps.device[parts.gap], does)
        call, thread, wait = call[row], thread[row], wait[row]
    # A return from a wait that did not let the GPU run dry is a call like others.
    cause[(cause == causes.SYNC_DRAIN) & (wait < 0)] = causes.LAUNCH_LATE
    late = (causes.LAUNCH_LATE, causes.SYNC_DRAIN, causes.GARBAGE_COLLECTION)
    rows = np.flatnonzero(np.isin(cause, late))
    compiles = compilation.compiling(trace, parts.start_ns[rows], parts.end_ns[rows])
    cause[rows[compiles]] = causes.COMPILATION
    cause[gap_bounds.hold_lost_work(trace, gaps)[parts.gap]] = causes.LOST_WORK
    loads = np.isin(cause, (causes.MODULE_LOAD, causes.JIT_COMPILE))
    loading = np.zeros(len(gaps), bool)
    long = parts.duration_ns > operations.LAZY_LOAD_NS
    loading[parts.gap[loads & (long | (not _is_compiled(trace)))]] = True
    new = operations.first_launches(trace)[gaps.after]
    # Kernels of one name may be variants, each with code that its compiler loads and launches.
    variant = np.zeros(len(gaps), bool)
    variant[parts.gap[loads & _loads_for_good(trace)[call]]] = True
    new |= variant & _launched_by_driver(trace)[gaps.after]
    first = (loading & new)[parts.gap] | loads
    once = _first_pinning_calls(trace) | _library_set_ups(trace)
    first |= (cause == causes.ALLOCATION) & (call >= 0) & once[call]
    # In a context that a loop creates again and again, all first uses come again.
    resets = trace.recorded("api_calls")["start_ns"][operations.context_resets(trace)]
    after = np.searchsorted(resets, gaps.end_ns) - np.searchsorted(resets, gaps.start_ns)
    first &= (after == 0)[parts.gap]
    wait = np.where(cause == causes.SYNC_DRAIN, wait, -1)
    return _joined(parts, cause, wait, call, thread, first)


@fact_without_ranges
def idle_parts(trace: Trace) -> blame.IdleParts:
    """The parts of all gaps in order of time, as the graph has them."""
    gaps, graph = gap_bounds.gap_bounds(trace), idle_graph(trace)
    item = np.full(len(operations.operations(trace)) + 1, -1, np.int32)
    item[graph.operation] = np.arange(len(graph.operation)) + graph.calls
    found = blame.walk(graph, gaps.start_ns, gaps.end_ns, item[gaps.after])
    # From the end back to the start: turned around, within the gaps.
    order = np.arange(len(found) - 1, -1, -1)
    order = order[np.argsort(found.gap[order], kind="stable")]
    return blame.IdleParts(
        *(getattr(found, name)[order] for name in ("gap", "start_ns", "end_ns", "kind", "item"))
    )


@fact_without_ranges
def idle_graph(trace: Trace) -> Dependencies:
    """The graph that gaps are walked back along; of a long recording what such walks can reach."""
    ops, gaps = operations.operations(trace), gap_bounds.gap_bounds(trace)
    # What a thread does in a gap of a paced loop is behind the pace.
    if len(ops) <= WHOLE_GRAPH and not pacing.paced_loops(trace):
        return dependencies(trace)
    idle = intervals.covered(gaps)
    ends = np.zeros(len(ops), bool)
    ends[gaps.after] = True
    if len(operations.operations_by_device(trace)) > 1:
        # What one GPU waited for may have run on another.
        ends |= intervals.overlap(idle, ops.start_ns, ops.end_ns) > 0
    return build(trace, walked=Walked(row_numbers(np.flatnonzero(ends)), idle))


_MAY_LOAD = re.compile(r"cu(da)?(Occupancy|FuncSet)")
"""Calls on a kernel, whose code is loaded first: cuBLAS asks for its occupancy, then launches."""
_IN_CALLS = (IdlePart.LAUNCH, IdlePart.CALL, IdlePart.TAIL)


def _causes(
    trace: Trace, graph: Dependencies, parts: blame.IdleParts, call: RowNumbers, thread: Array
) -> Array:
    """The cause of each part by itself, as an index into CAUSES (uint8)."""
    calls, kind = operations.api_calls(trace), parts.kind
    inside = call >= 0
    row = np.where(inside, call, 0)
    does = (
        np.where(inside, calls.does[row], operations.CallKind.OTHER)
        if len(calls)
        else np.zeros_like(kind)
    )

    def mark(rows: Mask) -> Mask:
        return inside & rows[row] if len(rows) else inside

    after = gap_bounds.gap_bounds(trace).after[parts.gap]
    other = np.isin(kind, (IdlePart.PITCH, IdlePart.OTHER))
    copying = np.zeros(len(parts), bool)
    # Copies within the memory of the GPU are work like kernels.
    between = copies.between_memories(trace)
    copying[other] = between[graph.operation[parts.item[other] - graph.calls]]
    staged = (kind == IdlePart.HELD) & copies.pageable_copies(trace)[after]
    staged &= parts.end_ns - parts.start_ns <= MOST_STAGING_NS
    launching = mark(operations.graph_launch_calls(trace))
    by_graph = mark_gaps(trace)[parts.gap]
    allocates = (does == operations.CallKind.ALLOCATE) | mark(operations.pool_calls(trace))
    loads = np.isin(does, [operations.CallKind.LOAD, operations.CallKind.LOOK_UP])
    may_load = trace.recorded("api_calls").texts("name").matching(_MAY_LOAD.match)
    loads |= mark(operations.first_launch_calls(trace) | may_load) & (
        calls.duration_ns[row] > operations.LAZY_LOAD_NS if len(calls) else False
    )
    overheads, jit = trace.recorded("overheads"), trace.recorded("jit_compilations")
    own = profiler_overheads(trace) & ~overheads.is_null("thread")
    profiler = (overheads[name][own] for name in ("thread", "start_ns", "end_ns"))
    # No thread runs Python while one collects.
    process = np.append(trace.threads["process"], -1)[thread]
    collected = python_events.collections(trace)
    garbage = (collected[name] for name in ("process", "start_ns", "end_ns"))
    # Loads from the driver's cache compile nothing.
    compiled = jit.take(jit.texts("operation").isin(["compile"]))
    rules = (
        (~gap_bounds.gap_launches(trace).known[parts.gap], causes.UNKNOWN),
        ((other & copying) | staged, causes.COPY_WAIT),
        (other | (kind == IdlePart.HELD), causes.DEPENDENCY),
        (_mostly(parts, thread, *profiler), causes.PROFILER),
        (_mostly(parts, process, *garbage), causes.GARBAGE_COLLECTION),
        (_mostly(parts, thread, *_spans(compiled)), causes.JIT_COMPILE),
        (loads | _mostly(parts, thread, *_spans(jit)), causes.MODULE_LOAD),
        ((kind == IdlePart.LAUNCH) & copies.pageable_uploads(trace)[after], causes.COPY_WAIT),
        (by_graph & (launching | (does == operations.CallKind.GRAPH)), causes.GRAPH_LAUNCH),
        (allocates, causes.ALLOCATION),
        (kind == IdlePart.TAIL, causes.SYNC_DRAIN),
    )
    cause = np.select([test for test, _ in rules], [name for _, name in rules], causes.LAUNCH_LATE)
    return cause.astype(np.uint8)


def mark_gaps(trace: Trace) -> Mask:
    """True for the gaps that a CUDA graph ended."""
    launches, launching = gap_bounds.gap_launches(trace), operations.graph_launch_calls(trace)
    return launches.known & launching[launches.call] if len(launching) else launches.known


def _spans(table: object) -> tuple[Array, Integers, Integers]:
    return table["thread"], table["start_ns"], table["end_ns"]  # type: ignore[index]


def _mostly(
    parts: blame.IdleParts, thread: Array, on: Array, start: Integers, end: Integers
) -> Mask:
    """True for the parts of which intervals on their thread (or process) cover more than half."""
    result = np.zeros(len(parts), bool)
    for number in groups.different(on).tolist():
        rows, mine = np.flatnonzero(thread == number), on == number
        covered = intervals.union(start[mine], end[mine])
        time = intervals.overlap(covered, parts.start_ns[rows], parts.end_ns[rows])
        result[rows] = 2 * time > parts.duration_ns[rows]
    return result


def _with_drains(
    trace: Trace, parts: blame.IdleParts, cause: Array, wait: Integers
) -> tuple[RowNumbers, blame.IdleParts, Array]:
    """The parts, cut where the ordinary work of launching after a wait has lasted as long as it.

    Also the row of each among those given, and its cause: a sync-drain up to there.
    """
    every = waits(trace)
    ordinary = (cause == causes.SYNC_DRAIN) | (
        (cause == causes.LAUNCH_LATE) & (parts.duration_ns <= OWN_WORK_NS)
    )
    ordinary &= wait >= 0
    counted = np.where(ordinary, parts.duration_ns, 0)
    before = np.cumsum(counted) - counted
    first = np.flatnonzero(groups.opens(parts.gap)) if len(parts) else groups.NO_ROWS
    before -= np.repeat(before[first], np.diff(np.append(first, len(parts))))
    budget = np.append(every.duration_ns, 0)[wait]
    drained = np.clip(budget - before, 0, counted)
    row = np.repeat(np.arange(len(parts)), 1 + ((drained > 0) & (drained < parts.duration_ns)))
    second = ~groups.opens(row) if len(row) else np.zeros(0, bool)
    start, end = parts.start_ns[row], parts.end_ns[row]
    start[second] += drained[row[second]]
    end[np.flatnonzero(second) - 1] = start[second]
    result = cause[row]
    result[second] = causes.LAUNCH_LATE
    result[(drained[row] > 0) & ~second] = causes.SYNC_DRAIN
    cut = blame.IdleParts(parts.gap[row], start, end, parts.kind[row], parts.item[row])
    return row_numbers(row), cut, result


def _joined(
    parts: blame.IdleParts,
    cause: Array,
    wait: Integers,
    call: RowNumbers,
    thread: Array,
    first_use: Mask,
) -> GapCauses:
    """Neighbours of one gap, cause and thread as one; their call is that of the longest part."""
    if not len(parts):
        none = np.zeros(0, np.int64)
        return GapCauses(
            row_numbers(none), none, none, cause, none, row_numbers(none), thread, first_use
        )
    opens = groups.opens(parts.gap, cause, thread, wait)
    first = np.flatnonzero(opens)
    number = np.cumsum(opens) - 1
    # The longest part of each, the first of equal ones.
    longest = np.lexsort((np.arange(len(parts)), -parts.duration_ns, number))[first]
    return GapCauses(
        gap=parts.gap[first],
        start_ns=parts.start_ns[first],
        end_ns=parts.end_ns[np.append(first[1:], len(parts)) - 1],
        cause=cause[first],
        wait=wait[first],
        call=call[longest],
        thread=thread[first],
        first_use=np.logical_or.reduceat(first_use, first),
    )


_LOADS = re.compile(r"(cu|cuda|hip)(Module|Library)Load")
_UNLOADS = re.compile(r"(cu|cuda|hip)(Module|Library)Unload")


def _loads_for_good(trace: Trace) -> Mask:
    """True for the calls that load a module, where the program unloads none while it launches.

    What its thread did before such a call in the same gap, a compiler of kernels at run time did:
    look up, compile or read this code. The last row is for no call.
    """
    calls = trace.recorded("api_calls")
    names, result = calls.texts("name"), np.zeros(len(calls) + 1, bool)
    last_ns = calls["start_ns"][operations.call_kinds(trace) == operations.CallKind.LAUNCH]
    unloads = names.matching(_UNLOADS.match) & (calls["start_ns"] < last_ns.max(initial=0))
    result[:-1] = names.matching(_LOADS.match) & ~unloads.any()
    return result


def _is_compiled(trace: Trace) -> bool:
    """Whether the program is known to be compiled: what comes before the first use of a kernel that
    loads nothing is no import, but what the program itself does, such as to write an image."""
    names = [str(name) for name in trace.processes.texts("name").decode()]
    return bool(names) and all(name and not _INTERPRETS.search(name) for name in names)


_INTERPRETS = re.compile(r"python|julia|java|node|ruby|matlab|octave|^R$", re.IGNORECASE)


def _launched_by_driver(trace: Trace) -> Mask:
    """True for the operations launched through the driver's API, as compilers of kernels do it."""
    by_driver = trace.recorded("api_calls").texts("name").matching(_DRIVER_LAUNCH.match)
    call = operations.operations(trace).call
    return np.append(by_driver, False)[call]


_DRIVER_LAUNCH = re.compile(r"(cu|hipModule)LaunchKernel")


def _first_pinning_calls(trace: Trace) -> Mask:
    """True for the calls by which each process first allocates pinned memory, one per function.

    Reading a result on the CPU for the first time allocates it implicitly. Pools keep pinned
    memory, so a loop that allocates more of it is not a first use. The last row is for no call.
    """
    calls = trace.recorded("api_calls")
    rows = np.flatnonzero(calls.texts("name").matching(_PINS.match))
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    first = groups.group(calls["process"][rows], calls.texts("name").codes[rows]).first
    result = np.zeros(len(calls) + 1, bool)
    result[rows[first]] = True
    return result


_FREES, _LOOKS = re.compile(r"cudaFree(?:_v\d+)?"), re.compile(r"cudaDeviceGetAttribute(?:_v\d+)?")


def _library_set_ups(trace: Trace) -> Mask:
    """True for the calls by which cuBLAS sets itself up, in 2 to 13 ms: it frees nothing, twice,
    and then asks the GPU for its attributes. An allocator frees to allocate again.

    The last row is for no call.
    """
    calls = trace.recorded("api_calls")
    result = np.zeros(len(calls) + 1, bool)
    names = calls.texts("name")
    frees, looks = names.matching(_FREES.fullmatch), names.matching(_LOOKS.fullmatch)
    if not (frees.any() and looks.any()):
        return result
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    others = np.flatnonzero(~frees[order])
    freed = np.flatnonzero(frees[order])
    following = np.searchsorted(others, freed)
    rows, following = order[freed[following < len(others)]], following[following < len(others)]
    after = order[others[following]]
    own = calls["thread"][after] == calls["thread"][rows]
    result[rows] = looks[after] & own
    return result


_OWN_LOADING = re.compile("dlopen|Runtime Triggered Module Loading|Lazy Function Loading")


def profiler_overheads(trace: Trace) -> Mask:
    """True for the overheads that are the profiler's own cost.

    nsys lists each dlopen of the program among them, and CUPTI its loading of code at first use.
    """
    overheads = trace.recorded("overheads")
    loading = overheads.texts("name").matching(_OWN_LOADING.match)
    return overheads.texts("kind").isin(["profiler", "cupti"]) & ~loading


# The synchronization that let the GPU run dry, for each idle gap.


@fact_without_ranges
def find_drains(trace: Trace) -> Integers:
    """Row in waits of the synchronization that each gap began in or right after, or −1.

    In: a thread of the process was inside the wait when the GPU ran dry, and had left it when the
    launch call was made. A wait that outlasts the launch call did not hold it up. Neither did one
    for another device, nor one of another thread while the launching thread kept making calls.

    Right after: the launching thread had left the wait for less than RIGHT_AFTER_NS, and the
    launch was the first work that it enqueued since. Of several waits, the last to return counts.
    """
    gaps, launches, calls = (
        gap_bounds.gap_bounds(trace),
        gap_bounds.gap_launches(trace),
        operations.api_calls(trace),
    )
    enqueuing = operations.calls_that_enqueue(operations.operations(trace), len(calls))
    return drains(gaps, launches, waits(trace), calls, enqueuing)


def drains(
    gaps: gap_bounds.GapBounds,
    launches: gap_bounds.GapLaunches,
    waits: Waits,
    calls: operations.ApiCalls,
    enqueuing: Mask,
) -> Integers:
    """As `find_drains`; `enqueuing` is True for the API calls that enqueued work."""
    result = np.full(len(gaps), -1, np.int64)
    waiting = np.isin(
        waits.does,
        [operations.CallKind.SYNCHRONIZE, operations.CallKind.COPY, operations.CallKind.COPY_ASYNC],
    )
    gap, wait = _candidates(gaps, launches, waits, waiting)
    holds = ~_thread_went_on(gaps, launches, waits, calls, enqueuing, gap, wait)
    gap, wait = gap[holds], wait[holds]
    # The last assignment to a gap wins: the last wait to return, the first of equal ones.
    order = np.lexsort((-np.arange(len(gap)), waits.end_ns[wait], gap))
    result[gap[order]] = wait[order]
    return result


def _candidates(
    gaps: gap_bounds.GapBounds, launches: gap_bounds.GapLaunches, waits: Waits, drains: Mask
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
        wait = rows[gap_bounds.latest_so_far(waits.end_ns[rows])[np.maximum(begun, 0)]]
        end = waits.end_ns[wait]
        holds = (begun >= 0) & (end <= launches.issued_ns[gap_rows])
        holds &= end >= np.where(launches.thread[gap_rows] == thread, start - RIGHT_AFTER_NS, start)
        holds &= (waits.device[wait] < 0) | (waits.device[wait] == gaps.device[gap_rows])
        pairs.append((gap_rows[holds], wait[holds]))
    gap, wait = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return gap.astype(np.int64), wait.astype(np.int64)


def _thread_went_on(
    gaps: gap_bounds.GapBounds,
    launches: gap_bounds.GapLaunches,
    waits: Waits,
    calls: operations.ApiCalls,
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
