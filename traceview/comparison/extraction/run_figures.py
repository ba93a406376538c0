"""The figures of a run, from its trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from traceview import groups
from traceview.comparison.extraction.environment import environment_of
from traceview.comparison.extraction.parts import step_parts, work_groups
from traceview.comparison.extraction.window import RunWindow, run_window
from traceview.comparison.extraction.work import WorkKind, in_steps, window_work
from traceview.comparison.figures import RunFigures, StepPart
from traceview.facts.memory.allocation_calls import freeing_calls
from traceview.facts.memory.growth import growth
from traceview.facts.memory.levels import levels
from traceview.facts.operations.cuda_api import CallKind, call_kinds
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.steps.inferred import with_steps
from traceview.facts.steps.steps import step_of_calls, step_of_operations, steps
from traceview.tables import Integers
from traceview.trace import Selection, Trace, fact

# Counts over the steps of a run: calls of the CPU, and work of the GPU.


@fact
def counts_of(trace: Trace) -> Mapping[str, int]:
    """Totals over the window; see RunFigures for the names."""
    return {**_work_counts(trace), **_call_counts(trace)}


def _work_counts(trace: Trace) -> dict[str, int]:
    work, ops = window_work(trace), operations(trace)
    kind = work.kind[work.counted]
    rows = work.rows[work.counted]
    copied = ops.row[rows[ops.kind[rows] == Kind.COPY]]
    return {
        "kernels": int((kind == WorkKind.KERNEL).sum()),
        "graphs": int((kind == WorkKind.GRAPH).sum()),
        "collectives": int((kind == WorkKind.COMMUNICATION).sum()),
        "copies": int((kind == WorkKind.COPY).sum()),
        "memsets": int((kind == WorkKind.MEMSET).sum()),
        "copied_bytes": int(trace.recorded("copies")["bytes"][copied].sum()),
    }


def _call_counts(trace: Trace) -> dict[str, int]:
    """Counts of the calls that the processes of the GPU made in the steps."""
    window = run_window(trace)
    rows = _calls(trace, window)
    kind, freed = call_kinds(trace)[rows], freeing_calls(trace)[rows]
    allocates = kind == CallKind.ALLOCATE
    return {
        "launches": int((kind == CallKind.LAUNCH).sum()),
        "synchronizations": int((kind == CallKind.SYNCHRONIZE).sum()),
        "blocking_copies": int((kind == CallKind.COPY).sum()),
        "allocations": int((allocates & ~freed).sum()),
        "releases": int((allocates & freed).sum()),
    }


_COUNTED = (CallKind.LAUNCH, CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.ALLOCATE)


def _calls(trace: Trace, window: RunWindow) -> Integers:
    """Rows of api_calls made in the steps of the window, or between them."""
    calls, ops = trace.recorded("api_calls"), operations(trace)
    chosen = np.isin(call_kinds(trace), _COUNTED)
    own = groups.different(ops.process[ops.device == window.device])
    rows = np.flatnonzero(chosen & np.isin(calls["process"], own))
    start = calls["start_ns"][rows]
    if len(window.steps):
        all_steps = steps(trace)
        first = int(all_steps.cpu_start_ns[window.steps].min())
        last = int(all_steps.cpu_end_ns[window.steps].max())
    elif len(window.covered.start):
        first, last = int(window.covered.start[0]), int(window.covered.end[-1])
    else:
        first = last = 0
    between = (start >= first) & (start < last)
    return rows[in_steps(window, step_of_calls(trace, rows), between)]


# The figures of a run by name, as rules of a gate refer to them: see RunFigures.

LEAST_FRACTION = 0.0005
"""A kernel with less of the window, and without known widths, has no figures of its own."""


def named_figures(trace: Trace) -> Mapping[str, float]:
    """Figures by name."""
    window, parts = run_window(trace), step_parts(trace)
    steps = max(len(window.step_ns), 1)
    kernels = [part for part in parts if part.kind in ("kernel", "communication")]
    return {
        "step_ns": window.total_ns / steps,
        "step_median_ns": float(np.median(window.step_ns)),
        **_shares(parts, max(window.total_ns, 1), steps),
        **{f"{name}_per_step": count / steps for name, count in counts_of(trace).items()},
        **_memory(trace, window.device),
        **_sums("idle_ns", ((p.name, p.time_ns) for p in parts if p.kind == "idle"), steps),
        **_sums("class_ns", ((p.group, p.time_ns) for p in kernels), steps),
        **dict(_of_kernels(kernels, window.total_ns, steps)),
    }


def _shares(parts: Sequence[StepPart], total: int, steps: int) -> dict[str, float]:
    spent: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        spent[part.kind] += part.time_ns
    return {
        "gpu_busy_pct": 100.0 * (total - spent["idle"]) / total,
        "gpu_idle_pct": 100.0 * spent["idle"] / total,
        "gpu_idle_ns": spent["idle"] / steps,
        "exposed_communication_pct": 100.0 * spent["communication"] / total,
        "exposed_communication_ns": spent["communication"] / steps,
        "exposed_copies_pct": 100.0 * (spent["copy"] + spent["memset"]) / total,
        "exposed_copies_ns": (spent["copy"] + spent["memset"]) / steps,
    }


def _memory(trace: Trace, device: int) -> dict[str, float]:
    level, grown = levels(trace).get(device), growth(trace).get(device)
    result = {} if level is None else {"peak_memory_bytes": float(level.bytes.max(initial=0))}
    if grown is not None:
        result["memory_growth_bytes_per_step"] = float(grown.bytes_per_step)
    return result


def _sums(name: str, times: Iterator[tuple[str, int]], steps: int) -> dict[str, float]:
    """`name[key]` for each key: the sum of its values per step."""
    total: defaultdict[str, int] = defaultdict(int)
    for key, time in times:
        total[key] += time
    return {f"{name}[{key}]": value / steps for key, value in total.items()}


def _of_kernels(kernels: Sequence[StepPart], total: int, steps: int) -> Iterator[tuple[str, float]]:
    by_name: defaultdict[str, list[StepPart]] = defaultdict(list)
    for part in kernels:
        by_name[part.name].append(part)
    for name, parts in by_name.items():
        shapes = [part.shape for part in parts if part.shape]
        widths = [shape.load_bits for shape in shapes if shape.load_bits]
        time = sum(part.busy_ns for part in parts)
        if not widths and time < LEAST_FRACTION * total:
            continue
        yield f"kernel_ns[{name}]", time / steps
        yield f"calls_per_step[{name}]", sum(part.calls for part in parts) / steps
        if widths:
            yield f"load_bits[{name}]", float(min(widths))
        if stores := [shape.store_bits for shape in shapes if shape.store_bits]:
            yield f"store_bits[{name}]", float(min(stores))
        longest = max(parts, key=lambda part: part.busy_ns).shape
        if longest and longest.waves is not None:
            yield f"waves[{name}]", longest.waves
        if longest and longest.registers is not None:
            yield f"registers[{name}]", float(longest.registers)


MOST_IN_SEQUENCE = 20_000
"""Operations of a step, or of a run without steps, that the sequence lists at most."""


def figures_of(trace: Trace) -> RunFigures:
    """The figures of a recording, as `traceview.load` returns it.

    Raises ComparisonRefusedError where no GPU work was recorded.
    """
    trace = with_steps(trace.but(selection=Selection()) if trace.selection else trace)
    window, listed = run_window(trace), _sequence(trace)
    return RunFigures(
        name=Path(trace.path).name,
        digest=digest_of(trace),
        recorder=trace.recorder,
        environment=environment_of(trace, window.device),
        devices=len(groups.different(operations(trace).device)),
        has_steps=bool(len(window.steps)),
        step_ns=tuple(window.step_ns.tolist()),
        window_ns=window.total_ns,
        parts=step_parts(trace),
        counts=counts_of(trace),
        figures=named_figures(trace),
        sequence=tuple(work_groups(trace).ids[listed].tolist()),
        sequence_ns=tuple(window_work(trace).own_ns[listed].tolist()),
        warnings=trace.warnings,
    )


def digest_of(trace: Trace) -> str:
    """A hash of the times of GPU work: equal for copies of a recording in any file format."""
    ops, hashed = operations(trace), blake2b(digest_size=16)
    for column in (ops.start_ns, ops.end_ns, ops.kind):
        hashed.update(np.ascontiguousarray(column).tobytes())
    return hashed.hexdigest()


def _sequence(trace: Trace) -> Integers:
    """Rows of `window_work` in the median step, by start; without steps, all of the run."""
    window, work = run_window(trace), window_work(trace)
    if not len(window.steps):
        return np.arange(min(len(work.rows), MOST_IN_SEQUENCE))
    middle = np.argsort(window.step_ns, kind="stable")[len(window.step_ns) // 2]
    own = step_of_operations(trace)[work.rows] == window.steps[middle]
    return np.flatnonzero(own)[:MOST_IN_SEQUENCE]
