"""The figures of a run by name, as rules of a gate refer to them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview.comparison.extraction.counts import counts_of
from traceview.comparison.extraction.parts import step_parts
from traceview.comparison.extraction.window import run_window
from traceview.facts.memory.levels import levels
from traceview.trace import Trace


def named_figures(trace: Trace) -> Mapping[str, float]:
    """Figures by name; RunFigures says what each is."""
    window, parts = run_window(trace), step_parts(trace)
    total, number = max(window.total_ns, 1), max(len(window.step_ns), 1)
    exposed = {
        kind: sum(part.time_ns for part in parts if part.kind == kind)
        for kind in ("communication", "copy", "idle")
    }
    return {
        "step_ns": window.total_ns / number,
        "step_median_ns": float(np.median(window.step_ns)),
        "gpu_busy_pct": 100.0 * (window.total_ns - exposed["idle"]) / total,
        "gpu_idle_pct": 100.0 * exposed["idle"] / total,
        "exposed_communication_pct": 100.0 * exposed["communication"] / total,
        "exposed_copies_pct": 100.0 * exposed["copy"] / total,
        **{f"{name}_per_step": count / number for name, count in counts_of(trace).items()},
        **_memory(trace, window.device),
    }


def _memory(trace: Trace, device: int) -> dict[str, float]:
    level = levels(trace).get(device)
    return {} if level is None else {"peak_memory_bytes": float(level.bytes.max(initial=0))}
