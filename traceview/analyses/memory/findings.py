"""Findings of `memory`: allocation in the loop, and memory that grows from step to step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.analyses.lost_time import lost_in
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.memory.allocation_calls import Recurring, freeing_calls, recurring
from traceview.facts.memory.growth import Growth, allocated_sizes, growth, steady_steps
from traceview.facts.memory.levels import levels
from traceview.facts.operations.cuda_api import api_calls
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.samples import stack_lines
from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.records import record
from traceview.tables import NULL, Cell, Integers
from traceview.trace import Trace
from traceview.vocabulary.causes import ALLOCATION, CAUSE_NAMES

_FULL = 0.9
_LEAST_SAMPLES = 3
_SOON = 100
# A leak repeats the same allocation; with more distinct sizes than this, sizes vary.
_VARYING = 0.5
REMOVE = (
    "Remove torch.cuda.empty_cache() from the loop: torch's allocator then keeps and reuses the "
    "memory."
)
SHRINK = (
    "Use a smaller batch, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where sizes vary: "
    "torch frees its cached blocks when cudaMalloc fails."
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
    if loop := recurring(trace):
        yield from _in_the_loop(trace, loop)
    for device, found_growth in growth(trace).items():
        if found_growth and found_growth.leaks:
            yield _leak(trace, device, found_growth)


def _in_the_loop(trace: Trace, loop: Recurring) -> Iterator[Finding]:
    span_ns = steady_spans_ns(trace).get(loop.device, 0)
    severity = severity_of(loop.idle_ns, span_ns)
    if severity is None:
        return
    every = gaps(trace)
    longest = loop.gap_rows[np.argmax(every.idle_ns[loop.gap_rows])]
    line, values = freeing_line(trace, loop), _loop_values(trace, loop)
    free = str(values["freeing_call"])
    per = " per step" if loop.steps else " in all"
    where = ""
    if line:
        where = " It frees at {freeing_line}" + (", calling {inner}." if line.inner else ".")
        values |= {"freeing_line": line.name, "inner": line.inner}
    yield Finding(
        severity,
        f"The loop allocates and frees GPU memory: {{allocations:call}} of {{allocating_call}} and "
        f"{{releases}} of {{freeing_call}}{per} take {{call_ns}} of CPU time, and the GPU sits "
        f"idle for {{idle_ns}} around them.{where}",
        _remedy(trace, loop, line),
        loop.idle_ns,
        Subject("line", line.name, line.file, line.line) if line else Subject("call", free),
        Evidence(
            values,
            "calls",
            {"api": free},
            int(every.start_ns[longest]),
            int(every.end_ns[longest]),
        ),
        share_pct(loop.idle_ns, span_ns),
        CAUSE_NAMES[ALLOCATION],
        lost_in(every, np.isin(np.arange(len(every)), loop.gap_rows)),
    )


def _loop_values(trace: Trace, loop: Recurring) -> dict[str, Cell]:
    """Figures per step, or of the whole loop where there are no steps."""
    allocate, free = _longest_calls(trace, loop)
    number = max(loop.steps, 1)
    return {
        "allocating_call": allocate,
        "freeing_call": free,
        "allocations": _per(loop.allocations, number),
        "releases": _per(loop.releases, number),
        "steps": loop.steps,
        "call_ns": loop.call_ns // number,
        "idle_ns": loop.idle_ns // number,
        "peak_bytes": int(levels(trace)[loop.device].bytes.max(initial=0)),
    }


def _per(calls: int, number: int) -> int:
    return max(round(calls / number), 1)


def _longest_calls(trace: Trace, loop: Recurring) -> tuple[str, str]:
    """The allocating and the freeing function in which most time passed."""
    freed = freeing_calls(trace)[loop.calls]
    return _longest(trace, loop.calls[~freed]), _longest(trace, loop.calls[freed])


def _longest(trace: Trace, calls: Integers) -> str:
    table = trace.recorded("api_calls")
    names, taken = table.texts("name"), table.duration_ns[calls]
    if not len(calls):
        return ""
    total = np.bincount(names.codes[calls], taken)
    return str(names.values[int(np.argmax(total))])


def _remedy(trace: Trace, loop: Recurring, line: FreeingLine | None) -> str:
    """The remedy by allocator: torch frees on request, or when its pool is full."""
    if line and line.inner and "empty_cache" in line.inner:
        return REMOVE
    if framework(trace) != "torch":
        return POOL
    total = int(trace.devices["total_memory_bytes"][loop.device])
    peak = int(levels(trace)[loop.device].bytes.max(initial=0))
    return SHRINK if total != NULL and peak > _FULL * total else REMOVE


@record
class FreeingLine:
    """The line of the program from which memory is freed, and the library function inside."""

    file: str
    line: int
    inner: str | None

    @property
    def name(self) -> str:
        """`train.py:315`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


def freeing_line(trace: Trace, loop: Recurring) -> FreeingLine | None:
    """The line with most Python samples inside freeing calls; None with fewer than three."""
    samples, calls = trace.recorded("python_samples"), api_calls(trace)
    freed, stacks = loop.calls[freeing_calls(trace)[loop.calls]], stack_lines(trace)
    hit = np.zeros(len(samples), bool)
    for thread in groups.different(calls.thread[freed]).tolist():
        own = freed[calls.thread[freed] == thread]
        inside = intervals.union(calls.start_ns[own], calls.end_ns[own])
        hit |= (samples["thread"] == thread) & intervals.inside(inside, samples["time_ns"])
    stack = samples["stack"][hit]
    stack = stack[stacks.frame[stack] >= 0] if len(stack) else stack
    if not len(stack):
        return None
    frames = trace.recorded("python_frames")
    row = stacks.frame[stack]
    each = groups.group(frames.texts("file").codes[row], frames["line"][row])
    most = int(np.argmax(groups.count(each)))
    if groups.count(each)[most] < _LEAST_SAMPLES:
        return None
    place, of_line = int(row[each.first[most]]), stack[each.ids == most]
    inner = stacks.inner.take(of_line)
    usual = Counter(inner.decode()).most_common(1)[0][0]
    file = str(frames.texts("file")[place])
    return FreeingLine(file, int(frames["line"][place]), None if usual is None else str(usual))


def _leak(trace: Trace, device: int, grown: Growth) -> Finding:
    """Finding on growth up to the end.

    Where the sizes of allocations vary, it is for information, and does not say when memory is
    full: a pool grows only until it has a block for each size.
    """
    total = int(trace.devices["total_memory_bytes"][device])
    level, of = levels(trace)[device], steady_steps(trace)[device]
    sizes = allocated_sizes(trace, device)
    vary = len(groups.different(sizes)) > _VARYING * len(sizes)
    left = total - int(level.at(np.array([of.end_ns]))[0])
    goes_on = total != NULL and not vary
    full_after = max(int(left / grown.bytes_per_step), 0) if goes_on else None
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
