"""The figures of a run, from its trace, and the machine and software that it ran on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from traceview.base import groups
from traceview.base.tables import Integers, arrays
from traceview.traces.comparison.figures import RunFigures, StepPart
from traceview.traces.comparison.parts import step_parts, work_groups
from traceview.traces.comparison.window import WorkKind, in_steps, run_window, window_work
from traceview.traces.facts.idle.first_calls import shows_first_calls_alone
from traceview.traces.facts.memory import freeing_calls, growth, levels
from traceview.traces.facts.operations import CallKind, Kind, call_kinds, operations
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import (
    loop_names,
    pace,
    step_of_calls,
    step_of_operations,
    steps,
)
from traceview.traces.trace import Selection, Trace, fact, model

_OF_RUN = (
    *("driver", "cuda", "python", "torch", "triton", "jax", "numpy", "nvtx", "host_os"),
    *("cpu_count", "git_commit", "git_dirty"),
)
_GPU_IDLE = 0x1
_CLOCK_LIMITS: Mapping[int, str] = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "temperature", 0x40: "temperature (hardware)", 0x80: "power brake", 0x100: "display",
}  # fmt: skip
"""nvmlClocksEventReasons: why a clock is not higher, where the GPU is not idle."""
_OF_DEVICE = {"gpu": "name", "compute_capability": "compute_capability", "sm_count": "sm_count"}


def environment_of(trace: Trace, device: int) -> Mapping[str, str]:
    """Known facts of the environment that may explain a difference, name to text."""
    device_row = {name: trace.devices.cells(column)[device] for name, column in _OF_DEVICE.items()}
    options = vars(model.recording_options(trace))
    slowing = ", ".join(name.replace("_", " ") for name, on in options.items() if on)
    clock_hz = trace.devices.cells("clock_hz")[device]
    values = {
        "gpu": trace.run.get("gpu"),
        **{name: trace.run[name] for name in _OF_RUN if name in trace.run},
        "recorder": trace.recorder,
        "recorder_version": trace.recorder_version,
        "recorder_options": slowing or "plain",
        "traceview": trace.run.get("traceview_version"),
        **_gpu_state(trace.run),
        "max_sm_clock_mhz": f"{float(clock_hz) / 1e6:g}" if clock_hz else None,
        **{name: str(value) for name, value in device_row.items() if value is not None},
    }
    return {name: value for name, value in values.items() if value}


def _gpu_state(run: Mapping[str, str]) -> dict[str, str]:
    """The state of the program's GPUs before and after the run by nvidia-smi, in one value.

    Clocks after the run are of GPUs that were not yet idle again, as idle GPUs lower them.
    """
    reasons = [int(value) for value in _numbers(run, "clock_reasons_after")]
    busy = [number for number, bits in enumerate(reasons) if not bits & _GPU_IDLE]
    figures: dict[str, float | None] = {
        "power_limit_w": min(_numbers(run, "power_limit_w_after"), default=None),
        "temperature_c": max(_numbers(run, "temperature_c_after"), default=None),
        "other_processes": max(
            (n for when in ("before", "after") for n in _numbers(run, f"other_processes_{when}")),
            default=None,
        ),
    }
    for name in ("sm_clock_mhz", "memory_clock_mhz"):
        clocks = _numbers(run, f"{name}_after")
        of_busy = [clocks[number] for number in busy if len(clocks) == len(reasons)]
        figures[name] = min(of_busy, default=None)
    state = {name: f"{value:g}" for name, value in figures.items() if value is not None}
    if busy:
        limits = {bit for number in busy for bit in _CLOCK_LIMITS if reasons[number] & bit}
        state["clock_limits"] = ", ".join(_CLOCK_LIMITS[bit] for bit in sorted(limits)) or "none"
    return state


def _numbers(run: Mapping[str, str], name: str) -> list[float]:
    """The values of a recorded fact, one per GPU; empty if one of them is not a number."""
    texts = [text for text in run.get(name, "").split(",") if text]
    try:
        return [int(text, 16) if text.startswith("0x") else float(text) for text in texts]
    except ValueError:
        return []


# Counts over the steps of a run: calls of the CPU, and work of the GPU.


_COUNTED = (CallKind.LAUNCH, CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.ALLOCATE)


@fact
def counts_of(trace: Trace) -> Mapping[str, int]:
    """Totals over the window; see RunFigures for the names."""
    work, ops, calls = window_work(trace), operations(trace), _calls(trace)
    kind, rows = work.kind[work.counted], work.rows[work.counted]
    copied = ops.row[rows[ops.kind[rows] == Kind.COPY]]
    call, freed = call_kinds(trace)[calls], freeing_calls(trace)[calls]
    allocates = call == CallKind.ALLOCATE
    counted = {
        "kernels": kind == WorkKind.KERNEL,
        "graphs": kind == WorkKind.GRAPH,
        "collectives": kind == WorkKind.COMMUNICATION,
        "copies": kind == WorkKind.COPY,
        "memsets": kind == WorkKind.MEMSET,
        "copied_bytes": trace.recorded("copies")["bytes"][copied],
        "launches": call == CallKind.LAUNCH,
        "synchronizations": call == CallKind.SYNCHRONIZE,
        "blocking_copies": call == CallKind.COPY,
        "allocations": allocates & ~freed,
        "releases": allocates & freed,
    }
    return {name: int(values.sum()) for name, values in counted.items()}


def _calls(trace: Trace) -> Integers:
    """Rows of the calls that the processes of the GPU made in the steps, or between them."""
    window, calls, ops = run_window(trace), trace.recorded("api_calls"), operations(trace)
    users = groups.different(ops.process[ops.device == window.device])
    rows = np.flatnonzero(np.isin(call_kinds(trace), _COUNTED) & np.isin(calls["process"], users))
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
    spent: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        spent[part.kind] += part.time_ns
    total_ns, copies_ns = max(window.total_ns, 1), spent["copy"] + spent["memset"]
    level, grown = levels(trace).get(window.device), growth(trace).get(window.device)
    figures = {
        "step_ns": window.total_ns / steps,
        "step_median_ns": float(np.median(window.step_ns)),
        "gpu_busy_pct": 100.0 * (total_ns - spent["idle"]) / total_ns,
        "gpu_idle_pct": 100.0 * spent["idle"] / total_ns,
        "gpu_idle_ns": spent["idle"] / steps,
        "exposed_communication_pct": 100.0 * spent["communication"] / total_ns,
        "exposed_communication_ns": spent["communication"] / steps,
        "exposed_copies_pct": 100.0 * copies_ns / total_ns,
        "exposed_copies_ns": copies_ns / steps,
        **{f"{name}_per_step": count / steps for name, count in counts_of(trace).items()},
    }
    if level is not None:
        figures["peak_memory_bytes"] = float(level.bytes.max(initial=0))
    if grown is not None:
        figures["memory_growth_bytes_per_step"] = float(grown.bytes_per_step)
    return {
        **figures,
        **_sums("idle_ns", ((p.name, p.time_ns) for p in parts if p.kind == "idle"), steps),
        **_sums("class_ns", ((p.group, p.time_ns) for p in kernels), steps),
        **dict(_of_kernels(kernels, window.total_ns, steps)),
    }


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


LEAST_OF_LOOP = 3
"""Fewer steps are no loop to name."""
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
        loops=_loops(trace),
        cold=shows_first_calls_alone(trace),
    )


def _loops(trace: Trace) -> dict[str, tuple[int, int]]:
    """Steps after warm-up and their median, of each series that is one loop."""
    window, timed, every = run_window(trace), pace(trace), steps(trace)
    chosen = timed.timed & ~timed.warm_up & (every.operations > 0)
    found: dict[str, tuple[bool, int, int]] = {}
    for rows in groups.rows_of(every.series).values():
        own = rows[chosen[rows]]
        if len(own) >= LEAST_OF_LOOP and len(groups.different(timed.loop[own])) == 1:
            median_ns = int(arrays.median(timed.duration_ns[own]))
            later = not np.isin(window.steps, own).any()
            found[str(loop_names(trace)[int(own[0])])] = (later, len(own), median_ns)
    return {name: (count, ns) for name, (_, count, ns) in sorted(found.items(), key=_by_place)}


def _by_place(item: tuple[str, tuple[bool, int, int]]) -> tuple[bool, int]:
    later, count, median_ns = item[1]
    return later, -count * median_ns


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
