"""Findings of `memory`: allocation in the loop, and memory that grows from step to step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.analyses.memory.calls import Recurring, freeing_calls, recurring
from traceview.analyses.memory.growth import Growth, allocated_sizes, growth, steady_steps
from traceview.analyses.memory.levels import levels
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.operations.hosts import gpu_cells
from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.tables import NULL, Cell, Integers
from traceview.trace import Trace

_FULL = 0.9
_SOON = 100
# A leak repeats the same allocation; with more distinct sizes than this, sizes vary.
_VARYING = 0.5
REMOVE = (
    "Remove torch.cuda.empty_cache() from the loop: torch's allocator then keeps and reuses the "
    "memory."
)
SHRINK = (
    "Make room: torch frees its cached blocks where cudaMalloc fails. Use a smaller batch, or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where sizes vary."
)
VARYING = (
    "Look at what grows: where batches or sequences differ in size, a pool keeps a block for each "
    "size. Pad to a few sizes, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in torch."
)
KEPT = (
    "Look for tensors kept from step to step: losses summed without .item() or .detach(), lists of "
    "outputs, a growing cache. torch.cuda.memory._record_memory_history() names who allocated them."
)
POOL = (
    "Allocate before the loop and reuse the memory, or allocate from a pool (cudaMallocAsync; "
    "CuPy, RMM and Thrust have one, too)."
)


def memory_findings(trace: Trace) -> Iterator[Finding]:
    """Allocation in the loop first, then growth by device."""
    if found := recurring(trace):
        yield from _in_the_loop(trace, found)
    for device, found_growth in growth(trace).items():
        if found_growth and found_growth.leaks:
            yield _leak(trace, device, found_growth)


def _in_the_loop(trace: Trace, found: Recurring) -> Iterator[Finding]:
    span_ns = steady_spans_ns(trace).get(found.device, 0)
    severity = severity_of(found.idle_ns, span_ns)
    if severity is None:
        return
    every = gaps(trace)
    longest = found.gap_rows[np.argmax(every.idle_ns[found.gap_rows])]
    remedy, peak = _remedy(trace, found), int(levels(trace)[found.device].bytes.max(initial=0))
    allocate, free = _longest_calls(trace, found)
    per = " per step" if found.steps else " in all"
    number = max(found.steps, 1)
    values: dict[str, Cell] = {
        "allocating_call": allocate,
        "freeing_call": free,
        "allocations": _per(found.allocations, number),
        "releases": _per(found.releases, number),
        "steps": found.steps,
        "call_ns": found.call_ns // number,
        "idle_ns": found.idle_ns // number,
        "peak_bytes": peak,
    }
    yield Finding(
        severity,
        f"The loop allocates and frees GPU memory: {{allocations:call}} of {{allocating_call}} and "
        f"{{releases}} of {{freeing_call}}{per} take {{call_ns}} of CPU time, and the GPU sits "
        "idle for {idle_ns} around them. {freeing_call} also waits for the GPU to finish.",
        remedy,
        found.idle_ns,
        Subject("call", free),
        Evidence(
            values,
            "calls",
            {"api": free},
            int(every.start_ns[longest]),
            int(every.end_ns[longest]),
        ),
        share_pct(found.idle_ns, span_ns),
    )


def _per(calls: int, number: int) -> int:
    return max(round(calls / number), 1)


def _longest_calls(trace: Trace, found: Recurring) -> tuple[str, str]:
    """The allocating and the freeing function in which most time passed."""
    freed = freeing_calls(trace)[found.calls]
    return _longest(trace, found.calls[~freed]), _longest(trace, found.calls[freed])


def _longest(trace: Trace, calls: Integers) -> str:
    table = trace.recorded("api_calls")
    names, taken = table.texts("name"), table.duration_ns[calls]
    if not len(calls):
        return ""
    total = np.bincount(names.codes[calls], taken)
    return str(names.values[int(np.argmax(total))])


def _remedy(trace: Trace, found: Recurring) -> str:
    """What to do, by who allocates: torch frees on request, or where its pool finds no room."""
    if not _uses_torch(trace):
        return POOL
    total = int(trace.devices["total_memory_bytes"][found.device])
    peak = int(levels(trace)[found.device].bytes.max(initial=0))
    return SHRINK if total != NULL and peak > _FULL * total else REMOVE


def _uses_torch(trace: Trace) -> bool:
    names = trace.recorded("kernels").texts("name").values
    return any("at::native::" in str(name) for name in names)


def _leak(trace: Trace, device: int, grown: Growth) -> Finding:
    """Growth to the end of the recording; for information where allocations differ in size."""
    total = int(trace.devices["total_memory_bytes"][device])
    level, of = levels(trace)[device], steady_steps(trace)[device]
    sizes = allocated_sizes(trace, device)
    vary = len(groups.different(sizes)) > _VARYING * len(sizes)
    left = total - int(level.at(np.array([of.end_ns]))[0]) if total != NULL else None
    full_after = None if left is None else max(int(left / grown.bytes_per_step), 0)
    soon = full_after is not None and full_after < _SOON * grown.steps
    template = (
        f"Memory of {gpu_name(trace, device)} grows by {{growth_bytes_per_step}} per step, "
        "{grown_bytes} over {steps} steps"
    )
    template += "." if full_after is None else ". It is full after {full_after:more step}."
    template += " The allocations differ in size." if vary else ""
    return Finding(
        "info" if vary else "medium" if soon else "low",
        template,
        VARYING if vary else KEPT,
        0,
        gpu_subject(trace, device),
        Evidence(
            {
                "growth_bytes_per_step": grown.bytes_per_step,
                "grown_bytes": grown.grown_bytes,
                "steps": grown.steps,
                "full_after": full_after,
            },
            "peaks",
            gpu_cells(trace, device),
            int(of.start_ns[0]),
            of.end_ns,
        ),
    )
