"""The table of contents of a report, in reading order."""

from traceview.analyses import (
    gpu_idle,
    kernel_share,
    launch_overhead,
    memory_copies,
    run_ahead,
    sync_stalls,
    trace_health,
)
from traceview.analyses.base import Analysis

ALL: tuple[Analysis, ...] = (
    kernel_share.ANALYSIS,
    gpu_idle.ANALYSIS,
    run_ahead.ANALYSIS,
    sync_stalls.ANALYSIS,
    launch_overhead.ANALYSIS,
    memory_copies.ANALYSIS,
    trace_health.ANALYSIS,
)
