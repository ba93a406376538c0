"""Device memory over time: its peak, its growth per step, and allocation in the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import Subject
from traceview.base.intervals import by_start, overlap
from traceview.base.tables import NULL, Cell, Integers, Table, TableSpec, column_list
from traceview.base.vocabulary.causes import ALLOCATION, CAUSE_NAMES
from traceview.traces import rules
from traceview.traces.analyses import base, wording
from traceview.traces.facts import kernel_classes, operations, savings
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns
from traceview.traces.facts.memory import (
    Level,
    Recurring,
    allocated_sizes,
    allocating_calls,
    freeing_calls,
    growth,
    left_bytes,
    levels,
    moments,
    on_device,
    recurring,
    running_level,
    selected_events,
    signed_bytes,
    steady_calls,
    steady_steps,
)
from traceview.traces.facts.ranges import paths, ranges, selection
from traceview.traces.facts.samples import SampledLine, line_of, stack_lines
from traceview.traces.trace import Trace

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
_KEEP_CONTEXT = (
    "Keep the context: call {resetting_call} once, after the loop, and allocate before it. It "
    "frees all memory and code of the GPU, and the next call creates a context."
)
_RELEASE = (
    "Allocate before the loop and reuse the memory, or let the pool keep what is freed: raise its "
    "release threshold (cudaMemPoolAttrReleaseThreshold). By default each synchronization gives "
    "unused memory back."
)


def _in_the_loop(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Allocation in the loop: figures per step, or of the whole loop where there are no steps."""
    loop = recurring(trace)
    if not loop or not len(loop.gap_rows):
        return
    every, number = gaps(trace), max(loop.steps, 1)
    saving = savings.of_calls(trace, loop.calls)
    saved_ns = saving.saved_ns if saving else loop.idle_ns
    span_ns = steady_spans_ns(trace).get(loop.device, 0)
    longest = loop.gap_rows[np.argmax(every.idle_ns[loop.gap_rows])]
    freed = freeing_calls(trace)[loop.calls]
    reset = np.isin(loop.calls, operations.context_resets(trace))
    free = _longest_call(trace, loop.calls[freed])
    line, inner = _freeing_line(trace, loop.calls[freed])
    named = {"freeing_line": line.place, "inner": inner} if line else {}
    peak_bytes = int(levels(trace)[loop.device].bytes.max(initial=0))
    yield rules.TimeClaim(
        line.subject if line else Subject("call", free),
        {
            "allocating_call": _longest_call(trace, loop.calls[~freed & ~reset]),
            "freeing_call": free,
            "allocations": max(round((loop.allocations - int(reset.sum())) / number), 1),
            "releases": max(round(loop.releases / number), 1),
            "steps": loop.steps,
            "call_ns": loop.call_ns // number,
            "idle_ns": loop.idle_ns // number,
            "peak_bytes": peak_bytes,
            **({"resetting_call": _longest_call(trace, loop.calls[reset])} if reset.any() else {}),
            **named,
        },
        "calls",
        {"api": free},
        saved_ns,
        span_ns=span_ns,
        window=(int(every.start_ns[longest]), int(every.end_ns[longest])),
        cause=CAUSE_NAMES[ALLOCATION],
        lost=wording.lost_in(every, np.isin(np.arange(len(every)), loop.gap_rows)),
        remedy=_KEEP_CONTEXT if reset.any() else _remedy(trace, loop, inner, peak_bytes),
        words={"per": "per step" if loop.steps else "in all"},
        severity=rules.severity_of_part(saved_ns, loop.idle_ns, span_ns),
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
    every, pooled = gaps(trace), operations.pool_calls(trace)
    rows = loop.gap_rows[pooled[every.within[loop.gap_rows]]]
    if 2 * int(every.idle_ns[rows].sum()) > loop.idle_ns:
        return _RELEASE
    if kernel_classes.framework(trace) != "torch":
        return _POOL
    total = int(trace.devices["total_memory_bytes"][loop.device])
    return _SHRINK if total != NULL and peak_bytes > _FULL * total else _REMOVE


def _freeing_line(trace: Trace, freed: Integers) -> tuple[SampledLine | None, str | None]:
    """The line with most Python samples inside freeing calls, and the library function inside."""
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    calls, stacks = operations.api_calls(trace), stack_lines(trace)
    hit = np.zeros(len(samples), bool)
    for thread in groups.different(calls.thread[freed]).tolist():
        own = freed[calls.thread[freed] == thread]
        inside = intervals.covered(calls, own)
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


def _leaks(trace: Trace) -> Iterator[rules.TimeClaim]:
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
        yield rules.TimeClaim(
            rules.gpu_subject(trace, device),
            {
                "growth_bytes_per_step": grown.bytes_per_step,
                "grown_bytes": grown.grown_bytes,
                "steps": grown.steps,
                "full_after": full_after,
            },
            "peaks",
            operations.gpu_cells(trace, device),
            window=(int(of.start_ns[0]), of.end_ns),
            words={
                "gpu": rules.gpu_name(trace, device),
                # 0 more steps is a figure, too.
                "full_after_steps": "" if full_after is None else "{full_after:more step}",
                "differ": "differ" if vary else "",
            },
            remedy=_VARYING_SIZES if vary else _KEPT,
            severity="info" if vary else "medium" if soon else "low",
        )


RULES = (
    rules.FindingRule(
        _in_the_loop,
        "The loop allocates GPU memory and frees it[ {freeing_line:at}][, calling {inner}]: "
        "{allocations:call} of {allocating_call} and {releases} of {freeing_call} {per} take "
        "{call_ns} of CPU time, and the GPU sits idle for {idle_ns} in them.[ {resetting_call} "
        "destroys the context each time, and the next call creates it again.]",
    ),
    rules.FindingRule(
        _leaks,
        "Memory of {gpu} grows by {growth_bytes_per_step} per step, {grown_bytes} over {steps} "
        "steps.[ It is full after {full_after_steps}.][ The allocations {differ} in size.]",
    ),
)


# Device memory over time: its peak, its growth per step, and allocation in the loop.
#
# The level is what CUDA has given to the process: allocations less releases, as recorded. What a
# framework's pool does with it (torch's caching allocator, XLA, CuPy, RMM) is not recorded:
# memory that a pool keeps counts as allocated. CUDA's own contexts are left out.

PEAKS = TableSpec(
    "peaks",
    "one row per GPU: the most memory allocated at once, and its growth from step to step",
    column_list(f"""
        device_id int64: GPU
        {operations.HOST}
        peak_bytes int64: most memory allocated at once, by all processes
        peak_pct float64?: percentage of the GPU's memory
        at_ns int64: when it was first reached
        range_path text: innermost range of the call that allocated it
        end_bytes int64: memory allocated at the last event
        before_bytes int64: memory allocated before the recording, inferred from later releases
        growth_bytes_per_step float64?: median growth per steady step (Theil-Sen); absent with fewer
            than 5 steps
        allocations_per_step float64?: allocations of device memory per steady step; absent without
            steps
    """),
    brief=(
        "device_id peak_bytes peak_pct at_ns range_path growth_bytes_per_step allocations_per_step"
    ),
)
KINDS = TableSpec(
    "kinds",
    "one row per GPU and kind of memory, most bytes first",
    column_list(f"""
        device_id int64: GPU of the context that allocated
        {operations.HOST}
        memory text: device, pinned, managed, device static (code and variables), …
        allocations int64: allocations
        allocated_bytes int64: bytes of all allocations
        releases int64: releases
        released_bytes int64: bytes of all releases
        peak_bytes int64: most memory allocated at once
    """),
    brief="device_id memory allocations allocated_bytes releases peak_bytes",
)
CALLS = TableSpec(
    "calls",
    "one row per call that allocates or frees memory outside a pool, most time first",
    column_list("""
        api text: runtime or driver call
        calls int64: number of calls
        total_ns int64: CPU time in it
        median_ns int64: median per call
        steady_calls int64: calls after warm-up, before the last launch
        steady_ns int64: CPU time of these
        idle_ns int64: part of that in which a GPU was idle
    """),
    brief="api calls total_ns median_ns steady_calls steady_ns idle_ns",
)
TIMELINE = TableSpec(
    "timeline",
    "one row per GPU and slice of the recording: the most memory allocated in it",
    column_list(f"""
        device_id int64: GPU
        {operations.HOST}
        slice text: GPU and start of the slice
        slice_start_ns int64: start of the slice
        slice_end_ns int64: end of the slice
        allocated_bytes int64: most memory allocated in it
    """),
    brief="slice allocated_bytes",
    detail=True,
)
_SLICES = 120


def compute(trace: Trace) -> base.Result:
    events = trace.recorded("memory_events")
    events, left = events.take(selected_events(trace)), left_bytes(trace)[selected_events(trace)]
    change, memory = signed_bytes(events), events.texts("memory")
    by_kind = groups.group(events["device"], memory.codes)
    rows: list[dict[str, Cell]] = []
    for number, first in enumerate(by_kind.first.tolist()):
        own = np.flatnonzero(by_kind.ids == number)
        released = change[own] < 0
        level = running_level(own, events["time_ns"][own], (change - left)[own])
        rows.append(
            {
                **operations.gpu_cells(trace, int(events["device"][first])),
                "memory": memory[first],
                "allocations": int((~released).sum()),
                "allocated_bytes": int(change[own[~released]].sum()),
                "releases": int(released.sum()),
                "released_bytes": -int(change[own[released]].sum()),
                "peak_bytes": int(level.bytes.max(initial=0)),
            }
        )
    table = Table.from_rows(KINDS.columns, rows)
    return base.Result(
        {
            "peaks": Table.from_rows(PEAKS.columns, _peaks(trace)),
            "kinds": table.take(np.argsort(-table["allocated_bytes"], kind="stable")),
            "calls": _calls(trace),
            "timeline": Table.from_rows(TIMELINE.columns, _timeline(trace)),
        },
        tuple(rules.findings(trace, RULES)),
        notes=tuple(_notes(trace)),
    )


def _peaks(trace: Trace) -> Iterator[dict[str, Cell]]:
    for device, level in levels(trace).items():
        times = moments(trace, device)
        if len(times):
            reached = level.at(times)
            at_ns, peak = int(times[np.argmax(reached)]), int(reached.max())
            total = int(trace.devices["total_memory_bytes"][device])
            known, grown = total != NULL and total >= peak, growth(trace)[device]
            yield {
                **operations.gpu_cells(trace, device),
                "peak_bytes": peak,
                "peak_pct": 100 * peak / total if known and total else None,
                "at_ns": at_ns,
                "range_path": _range_path(trace, level, at_ns),
                "end_bytes": int(reached[-1]),
                "before_bytes": level.before_bytes,
                "growth_bytes_per_step": grown.bytes_per_step if grown else None,
                "allocations_per_step": len(allocated_sizes(trace, device)) / steps
                if (steps := len(steady_steps(trace)[device]))
                else None,
            }


def _range_path(trace: Trace, level: Level, at_ns: int) -> str:
    """The innermost range around the call of the last memory event up to `at_ns`."""
    last = int(np.searchsorted(level.time_ns, at_ns, side="right")) - 1
    events, calls = trace.recorded("memory_events"), trace.recorded("api_calls")
    if last < 0 or not len(calls):
        return paths.UNATTRIBUTED
    row = level.events[[last]]
    call = operations.correlated(calls, events, row)
    if call[0] < 0:
        return paths.UNATTRIBUTED
    tree = ranges.range_tree(trace)
    path = tree.path_of_ranges(ranges.attributed_calls(trace).range[call])
    return str(tree.paths.texts(path)[0])


def _calls(trace: Trace) -> Table:
    rows, steady = allocating_calls(trace), steady_calls(trace)
    names, calls = trace.recorded("api_calls").texts("name").take(rows), operations.api_calls(trace)
    each, took = groups.group(names.codes), calls.duration_ns[rows]
    figures, every = groups.stats(each, took), gaps(trace)
    idle = np.zeros(len(rows), np.int64)
    for device in groups.different(every.device).tolist():
        own = every.device == device
        dry = by_start(every.start_ns[own], every.end_ns[own])
        idle = np.maximum(idle, overlap(dry, calls.start_ns[rows], calls.end_ns[rows]))
    table = Table(
        CALLS.columns,
        {
            "api": names.take(each.first),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "steady_calls": groups.count(each, steady),
            "steady_ns": groups.sums(each, np.where(steady, took, 0)),
            "idle_ns": groups.sums(each, np.where(steady, idle, 0)),
        },
    )
    return table.take(np.argsort(-figures.total, kind="stable"))


def _timeline(trace: Trace) -> Iterator[dict[str, Cell]]:
    """Yield time slices from the first event of any GPU to the last event or operation."""
    every = levels(trace)
    if not every:
        return
    first = min(int(level.time_ns[0]) for level in every.values())
    last = max(int(level.time_ns[-1]) for level in every.values())
    for name in ("kernels", "copies"):
        last = max(last, int(trace.recorded(name)["end_ns"].max(initial=last)))
    edges = groups.different(np.linspace(first, last + 1, _SLICES + 1).astype(np.int64))
    for device, level in every.items():
        cells, highest = operations.gpu_cells(trace, device), level.most_within(edges)
        process = trace.recorded("memory_events")["process"][level.events[:1]]
        kept = selection.selected(trace, np.repeat(process, len(highest)), edges[:-1])
        name = f"GPU {cells['device_id']} " if len(every) > 1 else ""
        for number in np.flatnonzero(kept).tolist():
            start_ns = int(edges[number])
            yield {
                **cells,
                "slice": f"{name}{start_ns / 1e9:.3f} s",
                "slice_start_ns": start_ns,
                "slice_end_ns": int(edges[number + 1]),
                "allocated_bytes": int(highest[number]),
            }


def _notes(trace: Trace) -> Iterator[str]:
    if levels(trace):
        yield wording.by_recorder(
            trace,
            "These figures show memory allocated through CUDA, without CUDA contexts. Unused "
            "memory that a framework's pool keeps (torch's caching allocator, XLA, CuPy) "
            "counts as allocated.",
            "These figures show tensors in PyTorch's caching allocator. Memory that it keeps "
            "unused, and memory of CUDA contexts and of other libraries, is not in them.",
        )
    names = trace.recorded("api_calls").texts("name")
    mapped = names.isin(["cuMemCreate"])
    if mapped.any():
        events = trace.recorded("memory_events")
        known = groups.isin(
            trace.recorded("api_calls")["correlation_id"][mapped],
            events["correlation_id"][on_device(events)],
        )
        if not known.any():
            yield (
                "Memory created by cuMemCreate (such as torch's expandable segments) is not "
                "recorded, so these figures leave it out."
            )


ANALYSIS = base.Analysis(
    name="memory",
    title="GPU memory",
    question="How much GPU memory is allocated, does it grow, and is it allocated in the loop?",
    needs=("memory_events",),
    tables=(PEAKS, KINDS, CALLS, TIMELINE),
    compute=compute,
    charts=(
        base.Chart(
            "columns",
            "timeline",
            "GPU memory allocated over time",
            "slice",
            "allocated_bytes",
            most=400,
        ),
    ),
)
