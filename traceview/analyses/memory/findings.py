"""Findings of `memory`: allocation in the loop, and memory that grows from step to step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.lost_time import lost_in
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.memory.allocation_calls import Recurring, freeing_calls, recurring
from traceview.facts.memory.growth import allocated_sizes, growth, steady_steps
from traceview.facts.memory.levels import levels
from traceview.facts.operations.cuda_api import api_calls, pool_calls
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.samples import SampledLine, line_of, stack_lines
from traceview.facts.savings import call_savings
from traceview.findings import Subject
from traceview.rules.engine import FindingRule, TimeClaim, severity_of_part
from traceview.rules.gpus import gpu_name, gpu_subject
from traceview.rules.sentences import Clause
from traceview.tables import NULL, Integers
from traceview.trace import Trace
from traceview.vocabulary.causes import ALLOCATION, CAUSE_NAMES

_FULL = 0.9
_LEAST_SAMPLES = 3
_SOON = 100
# A leak repeats the same allocation; with more distinct sizes than this, sizes vary.
_VARYING = 0.5
_REMOVE = (
    "Remove torch.cuda.empty_cache() from the loop: torch's allocator then keeps and reuses the "
    "memory."
)
_SHRINK = (
    "Use a smaller batch, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where sizes vary: "
    "torch frees its cached blocks when cudaMalloc fails."
)
_VARYING_SIZES = (
    "Look at what grows: where batches or sequences differ in size, a pool keeps a block for each "
    "size. Pad to a few sizes, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in torch."
)
_KEPT = (
    "Look for tensors kept from step to step: losses summed without .item() or .detach(), lists of "
    "outputs, a growing cache. torch.cuda.memory._record_memory_history() names who allocated them."
)
_POOL = (
    "Allocate before the loop and reuse the memory, or allocate from a pool (cudaMallocAsync; "
    "CuPy, RMM and Thrust have one, too)."
)
_RELEASE = (
    "Allocate before the loop and reuse the memory, or let the pool keep what is freed: raise its "
    "release threshold (cudaMemPoolAttrReleaseThreshold). By default each synchronization gives "
    "unused memory back."
)


def _in_the_loop(trace: Trace) -> Iterator[TimeClaim]:
    """Allocation in the loop: figures per step, or of the whole loop where there are no steps."""
    loop = recurring(trace)
    if not loop or not len(loop.gap_rows):
        return
    every, number = gaps(trace), max(loop.steps, 1)
    saving = call_savings.of_calls(trace, loop.calls)
    saved_ns = saving.saved_ns if saving else loop.idle_ns
    span_ns = steady_spans_ns(trace).get(loop.device, 0)
    longest = loop.gap_rows[np.argmax(every.idle_ns[loop.gap_rows])]
    freed = freeing_calls(trace)[loop.calls]
    free = _longest_call(trace, loop.calls[freed])
    line, inner = _freeing_line(trace, loop.calls[freed])
    named = {"freeing_line": line.place, "inner": inner} if line else {}
    peak_bytes = int(levels(trace)[loop.device].bytes.max(initial=0))
    yield TimeClaim(
        line.subject if line else Subject("call", free),
        {
            "allocating_call": _longest_call(trace, loop.calls[~freed]),
            "freeing_call": free,
            "allocations": max(round(loop.allocations / number), 1),
            "releases": max(round(loop.releases / number), 1),
            "steps": loop.steps,
            "call_ns": loop.call_ns // number,
            "idle_ns": loop.idle_ns // number,
            "peak_bytes": peak_bytes,
            **named,
        },
        "calls",
        {"api": free},
        saved_ns,
        span_ns=span_ns,
        window=(int(every.start_ns[longest]), int(every.end_ns[longest])),
        cause=CAUSE_NAMES[ALLOCATION],
        lost=lost_in(every, np.isin(np.arange(len(every)), loop.gap_rows)),
        remedy=_remedy(trace, loop, inner, peak_bytes),
        words={"per": "per step" if loop.steps else "in all"},
        severity=severity_of_part(saved_ns, loop.idle_ns, span_ns),
        saving="about" if saving else None,
        edit=saving.edit if saving else None,
        error_ns=saving.error_ns if saving else None,
    )


def _longest_call(trace: Trace, calls: Integers) -> str:
    """The function in which most of the time of some calls passed."""
    table = trace.recorded("api_calls")
    names, taken = table.texts("name"), table.duration_ns[calls]
    if not len(calls):
        return ""
    return str(names.values[int(np.argmax(np.bincount(names.codes[calls], taken)))])


def _remedy(trace: Trace, loop: Recurring, inner: str | None, peak_bytes: int) -> str:
    """The remedy by allocator: torch frees on request, or when its pool is full."""
    if inner and "empty_cache" in inner:
        return _REMOVE
    every, pooled = gaps(trace), pool_calls(trace)
    rows = loop.gap_rows[pooled[every.within[loop.gap_rows]]]
    if 2 * int(every.idle_ns[rows].sum()) > loop.idle_ns:
        return _RELEASE
    if framework(trace) != "torch":
        return _POOL
    total = int(trace.devices["total_memory_bytes"][loop.device])
    return _SHRINK if total != NULL and peak_bytes > _FULL * total else _REMOVE


def _freeing_line(trace: Trace, freed: Integers) -> tuple[SampledLine | None, str | None]:
    """The line with most Python samples inside freeing calls, and the library function inside."""
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    calls, stacks = api_calls(trace), stack_lines(trace)
    hit = np.zeros(len(samples), bool)
    for thread in groups.different(calls.thread[freed]).tolist():
        own = freed[calls.thread[freed] == thread]
        inside = intervals.union(calls.start_ns[own], calls.end_ns[own])
        hit |= (samples["thread"] == thread) & intervals.inside(inside, samples["time_ns"])
    stack = samples["stack"][hit]
    stack = stack[stacks.frame[stack] >= 0] if len(stack) else stack
    line = line_of(trace, stacks.frame[stack], _LEAST_SAMPLES) if len(stack) else None
    if not line:
        return None, None
    files, numbers = frames.texts("file").codes, frames["line"]
    frame = stacks.frame[stack]
    same = (files[frame] == files[line.frame]) & (numbers[frame] == numbers[line.frame])
    usual = Counter(stacks.inner.take(stack[same]).decode()).most_common(1)[0][0]
    return line, None if usual is None else str(usual)


def _leaks(trace: Trace) -> Iterator[TimeClaim]:
    """Growth up to the end, by device.

    Where the sizes of allocations vary, it is for information, and does not say when memory is
    full: a pool grows only until it has a block for each size.
    """
    for device, grown in growth(trace).items():
        if not grown or not grown.leaks:
            continue
        total = int(trace.devices["total_memory_bytes"][device])
        level, of = levels(trace)[device], steady_steps(trace)[device]
        sizes = allocated_sizes(trace, device)
        vary = len(groups.different(sizes)) > _VARYING * len(sizes)
        left = total - int(level.at(np.array([of.end_ns]))[0])
        goes_on = total != NULL and not vary
        full_after = max(int(left / grown.bytes_per_step), 0) if goes_on else None
        soon = full_after is not None and full_after < _SOON * grown.steps
        yield TimeClaim(
            gpu_subject(trace, device),
            {
                "growth_bytes_per_step": grown.bytes_per_step,
                "grown_bytes": grown.grown_bytes,
                "steps": grown.steps,
                "full_after": full_after,
            },
            "peaks",
            gpu_cells(trace, device),
            window=(int(of.start_ns[0]), of.end_ns),
            words={
                "gpu": gpu_name(trace, device),
                # 0 more steps is a figure, too.
                "full_after_steps": "" if full_after is None else "{full_after:more step}",
                "differ": "differ" if vary else "",
            },
            remedy=_VARYING_SIZES if vary else _KEPT,
            severity="info" if vary else "medium" if soon else "low",
        )


RULES = (
    FindingRule(
        _in_the_loop,
        "The loop allocates and frees GPU memory: {allocations:call} of {allocating_call} and "
        "{releases} of {freeing_call} {per} take {call_ns} of CPU time, and the GPU sits idle for "
        "{idle_ns} in them.",
        clauses=(Clause(" It frees at {freeing_line}[, calling {inner}]."),),
    ),
    FindingRule(
        _leaks,
        "Memory of {gpu} grows by {growth_bytes_per_step} per step, {grown_bytes} over {steps} "
        "steps.[ It is full after {full_after_steps}.][ The allocations {differ} in size.]",
    ),
)
