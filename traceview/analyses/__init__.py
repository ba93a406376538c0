"""The table of contents of a report, in reading order."""

from importlib import import_module

from traceview.analyses.base import Analysis

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

ALL: tuple[Analysis, ...] = tuple(
    import_module(f"traceview.analyses.{name}").ANALYSIS for name in _MODULES
)
