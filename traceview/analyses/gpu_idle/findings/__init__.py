"""Findings of `gpu-idle`: one per cause, for the GPU that lost most by it."""

from __future__ import annotations

from traceview.analyses.gpu_idle.findings.by_cause import by_cause
from traceview.analyses.gpu_idle.findings.once import before_first_work, one_time, without_work
from traceview.analyses.gpu_idle.findings.unknown import of_unknown
from traceview.findings import Finding
from traceview.trace import Trace


def idle_findings(trace: Trace) -> tuple[Finding, ...]:
    """Steady idle time by cause.

    `sync-stalls` reports idle time after selected synchronizations, `memory` that of allocation in
    the loop.
    """
    idle = (
        *by_cause(trace),
        *one_time(trace),
        *before_first_work(trace),
        *without_work(trace),
    )
    return (*idle, *of_unknown(trace))
