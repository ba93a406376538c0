"""The figures of a run by name, as rules of a gate refer to them: see RunFigures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceview.comparison.extraction.counts import counts_of
from traceview.comparison.extraction.parts import step_parts
from traceview.comparison.extraction.window import run_window
from traceview.comparison.figures import StepPart
from traceview.facts.memory.growth import growth
from traceview.facts.memory.levels import levels
from traceview.trace import Trace

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
