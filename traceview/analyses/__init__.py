"""The table of contents of a report, in reading order."""

from traceview.analyses import (
    gpu_idle,
    kernel_share,
    launch_overhead,
    load_widths,
    memory_copies,
    roofline,
    run_ahead,
    steps,
    sync_stalls,
    trace_health,
    wave_quantization,
)
from traceview.analyses.base import Analysis

ALL: tuple[Analysis, ...] = (
    kernel_share.ANALYSIS,
    gpu_idle.ANALYSIS,
    steps.ANALYSIS,
    run_ahead.ANALYSIS,
    sync_stalls.ANALYSIS,
    launch_overhead.ANALYSIS,
    wave_quantization.ANALYSIS,
    load_widths.ANALYSIS,
    roofline.ANALYSIS,
    memory_copies.ANALYSIS,
    trace_health.ANALYSIS,
)
