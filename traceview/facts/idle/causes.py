"""Why each idle gap was one: the work that ended it, and why that work did not start earlier.

The evidence is the launch call of that work, what it stood behind on the GPU, and what the thread
that made the call did meanwhile. A cause of the CPU's time is claimed only where it took more than
half of the gap on that very thread: what other threads did need not have delayed the launch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceview.facts.idle.gap_bounds import Edges, edges
from traceview.facts.idle.gap_launches import covered, launches, loading_calls, spent, staged
from traceview.facts.idle.stream_order import behind
from traceview.facts.idle.sync_drains import drains
from traceview.facts.operations.cuda_api import Does, graph_launch_calls, what_calls_do
from traceview.facts.operations.operations import Kind, first_launches, operations
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

CAUSES = {
    "launch-late": "nothing was queued: the GPU ran dry before the launch call returned",
    "sync-drain": "the GPU ran dry in or right after a synchronization, and the CPU launched only "
    "after it",
    "dependency": "work was queued already: it waited for another stream or an event, or the GPU "
    "took that long to go on to it",
    "copy-wait": "work was queued behind a copy, or was a copy whose bytes the CPU first had to "
    "move out of pageable memory",
    "graph-launch": "the CPU was launching, instantiating or uploading the CUDA graph that came "
    "next for most of it",
    "module-load": "the CPU spent most of it loading code for the GPU",
    "allocation": "the CPU spent most of it allocating or freeing memory",
    "profiler": "the profiler held the CPU for most of it",
    "unknown": "the launch call of the work that ended the gap was not recorded",
}
(
    LAUNCH_LATE,
    SYNC_DRAIN,
    DEPENDENCY,
    COPY_WAIT,
    GRAPH_LAUNCH,
    MODULE_LOAD,
    ALLOCATION,
    PROFILER,
    UNKNOWN,
) = range(9)

_PINS = re.compile(r"(cudaHostAlloc|cudaMallocHost|cuMemHostAlloc|cuMemAllocHost)$")
STARTS_WITHIN_NS = 50_000
"""Work launched onto an idle GPU starts within this time unless something else holds it back: on
an H200 within 5 µs of the call's return in each of some 1,500 launches."""


@dataclass(frozen=True)
class Reasons:
    """One row an idle gap. `cause` is an index into CAUSES, `wait` the row in waits that a
    sync-drain is due to, else −1. `first_use` is True where code was loaded on the way, or a
    process allocated the first of its pinned memory."""

    cause: Array
    wait: Integers
    first_use: Mask


@fact
def reasons(trace: Trace) -> Reasons:
    gap, made = edges(trace), launches(trace)
    half = gap.idle_ns // 2
    loading = spent(trace, loading_calls(trace))
    wait = drains(trace)
    blocked = made.queued_ns <= gap.start_ns
    held_back = gap.end_ns - made.queued_ns
    blocked |= (held_back > half) & (held_back > STARTS_WITHIN_NS)
    does = what_calls_do(trace)
    checks = (
        (~made.known, UNKNOWN),
        (staged(trace) > half, COPY_WAIT),
        (blocked & _behind_a_copy(trace, gap), COPY_WAIT),
        (blocked, DEPENDENCY),
        (_launching_graphs(trace) > half, GRAPH_LAUNCH),
        (loading > half, MODULE_LOAD),
        (spent(trace, does == Does.ALLOCATE) > half, ALLOCATION),
        (_profiled(trace) > half, PROFILER),
        (wait >= 0, SYNC_DRAIN),
    )
    cause = np.select([test for test, _ in checks], [name for _, name in checks], LAUNCH_LATE)
    first = first_launches(trace)[gap.after] & (loading > 0) & made.known
    first |= (cause == ALLOCATION) & (spent(trace, _first_pinned(trace)) > half)
    return Reasons(
        cause=cause.astype(np.uint8),
        wait=np.where(cause == SYNC_DRAIN, wait, -1),
        first_use=first | (cause == MODULE_LOAD),
    )


def _first_pinned(trace: Trace) -> Mask:
    """True for the call by which each process first allocates pinned memory.

    The first read of a result on the CPU does so on its own; pools keep that memory, so a loop
    that allocates does it again, and that counts.
    """
    calls = trace.recorded("api_calls")
    names = calls.texts("name")
    rows = np.flatnonzero(names.isin([n for n in names.values if _PINS.match(str(n))]))
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    _, first = np.unique(calls["process"][rows], return_index=True)
    result = np.zeros(len(calls), bool)
    result[rows[first]] = True
    return result


def _behind_a_copy(trace: Trace, gap: Edges) -> Mask:
    """Is what the work stood behind a copy that ended in the gap or at its start, once queued?"""
    done, stood, made = operations(trace), behind(trace), launches(trace)
    there = stood.operation >= 0
    before = np.where(there, stood.operation, gap.after)
    ended = done.end_ns[before] >= np.maximum(gap.start_ns, made.queued_ns)
    result: Mask = there & (done.kind[before] == Kind.COPY) & ended
    return result


def _launching_graphs(trace: Trace) -> Integers:
    """How much of each gap that a graph ended its thread spent on launching or preparing one."""
    made, launching = launches(trace), graph_launch_calls(trace)
    time = spent(trace, launching | (what_calls_do(trace) == Does.GRAPH))
    if not len(launching):
        return np.zeros(len(time), np.int64)
    return np.where(made.known & launching[made.call], time, 0)


def _profiled(trace: Trace) -> Integers:
    """How much of each gap the profiler took on the launching thread."""
    overheads = trace.recorded("overheads")
    mine = profilers_own(trace) & ~overheads.is_null("thread")
    thread, start, end = (overheads[name][mine] for name in ("thread", "start_ns", "end_ns"))
    return covered(trace, thread, start, end, launches(trace).known)


def profilers_own(trace: Trace) -> Mask:
    """True for the overheads that are the profiler's own cost.

    nsys lists each dlopen of the program among them, which is the program's own loading.
    """
    overheads = trace.recorded("overheads")
    names = overheads.texts("name")
    loading = [str(name) for name in names.values if str(name).startswith("dlopen")]
    result: Mask = overheads.texts("kind").isin(["profiler", "cupti"]) & ~names.isin(loading)
    return result
