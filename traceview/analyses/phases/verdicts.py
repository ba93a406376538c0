"""What limited each phase: the GPU, launches, synchronizations, or compilation."""

from __future__ import annotations

import numpy as np

from traceview.analyses.phases.phases import Phase, Phases
from traceview.facts.idle.causes import CAUSES, DEPENDENCY, LAUNCH_LATE, SYNC_DRAIN
from traceview.facts.idle.gaps import every_gap
from traceview.facts.operations.operations import operations
from traceview.tables import Array, Integers
from traceview.trace import Trace

BUSY_PCT = 95.0
"""A GPU that is busy for this share of a phase is what limits it."""
_MOST = 0.5
WITHOUT_WORK = (Phase.START_UP, Phase.SHUT_DOWN)


def verdicts(trace: Trace, every: Phases) -> list[str]:
    """The verdict on each phase: by the cause of most of its idle time, if there is much."""
    idle = _idle_by_cause(trace, every)
    duration = every.end_ns - every.start_ns
    rows = zip(every.phase.tolist(), duration.tolist(), every.busy_ns.tolist(), idle, strict=True)
    return [_verdict(Phase(phase), whole, busy, causes) for phase, whole, busy, causes in rows]


def _verdict(phase: Phase, duration_ns: int, busy_ns: int, idle_ns: Array) -> str:
    if phase == Phase.COMPILATION:
        return "compilation"
    if phase in WITHOUT_WORK or not busy_ns:
        return "no-gpu-work"
    if 100.0 * busy_ns >= BUSY_PCT * duration_ns:
        return "gpu-bound"
    dry_ns = int(idle_ns.sum() - idle_ns[DEPENDENCY])
    for cause, name in ((LAUNCH_LATE, "launch-bound"), (SYNC_DRAIN, "sync-drained")):
        if dry_ns and idle_ns[cause] > _MOST * dry_ns:
            return name
    return "mixed"


def _idle_by_cause(trace: Trace, every: Phases) -> Integers:
    """Idle time of each phase by cause, shape (phases, causes): a gap counts where it ends."""
    result = np.zeros((len(every), len(CAUSES)), np.int64)
    gaps, ops = every_gap(trace), operations(trace)
    process = ops.process[gaps.after]
    for number in np.unique(every.process).tolist():
        rows = np.flatnonzero(every.process == number)
        own = np.flatnonzero(process == number)
        at = np.searchsorted(every.start_ns[rows], gaps.end_ns[own], side="right") - 1
        inside = np.maximum(gaps.start_ns[own], every.start_ns[rows][np.maximum(at, 0)])
        length = np.maximum(gaps.end_ns[own] - inside, 0)
        np.add.at(result, (rows[np.maximum(at, 0)], gaps.cause[own]), length)
    return result
