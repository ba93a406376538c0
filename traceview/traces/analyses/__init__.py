"""The table of contents of a report, in reading order."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.traces.analyses.base import Analysis

_MODULES = (
    "kernel_share",
    "phases",
    "gpu_idle",
    "steps",
    "run_ahead",
    "sync_stalls",
    "launch_overhead",
    "wave_quantization",
    "load_widths",
    "roofline",
    "communication",
    "memory_copies",
    "memory",
    "trace_health",
)

ALL: tuple[Analysis, ...]


def __getattr__(name: str) -> tuple[Analysis, ...]:
    """`ALL`, imported when it is used: `traceview ptx` needs `analyses.base` alone."""
    if name != "ALL":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    analyses = tuple(import_module(f"{__name__}.{module}").ANALYSIS for module in _MODULES)
    globals()["ALL"] = analyses
    return analyses
