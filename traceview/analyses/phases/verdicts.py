"""What limited each phase: the GPU, launches, data, synchronizations, or compilation."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.gpu_idle.lines import idle_samples
from traceview.analyses.phases.phases import Phase, Phases
from traceview.analyses.verdict.launching import IDLE_PCT
from traceview.facts.idle.gaps import every_gap
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.selection import selected_operations
from traceview.tables import Array, Integers, picked, unbroken
from traceview.trace import Trace
from traceview.vocabulary.activities import DATA_LOADING, DATA_WAIT
from traceview.vocabulary.causes import CAUSES, DEPENDENCY

_MOST = 0.5
WITHOUT_WORK = (Phase.START_UP, Phase.SHUT_DOWN)


def verdicts(trace: Trace, every: Phases) -> list[str]:
    """The verdict on each phase, by the cause of most of its idle time if it has much."""
    phase_of_gaps = _phase_of_gaps(trace, every)
    idle = _idle_by_cause(trace, every, phase_of_gaps)
    data_ns = _idle_for_data(trace, every, phase_of_gaps)
    duration = every.end_ns - every.start_ns
    columns = (each.tolist() for each in (every.phase, duration, every.busy_ns, data_ns))
    rows = zip(*columns, idle, strict=True)
    return [_verdict(Phase(phase), *figures) for phase, *figures in rows]


def _verdict(phase: Phase, duration_ns: int, busy_ns: int, data_ns: int, idle_ns: Array) -> str:
    if phase == Phase.COMPILATION:
        return "compilation"
    if phase in WITHOUT_WORK or not busy_ns:
        return "no-gpu-work"
    if 100.0 * busy_ns >= (100.0 - IDLE_PCT) * duration_ns:
        return "gpu-bound"
    dry = np.where(np.arange(len(idle_ns)) == DEPENDENCY, 0, idle_ns)
    dry_ns, most = int(dry.sum()), int(np.argmax(dry))
    if dry_ns and data_ns > _MOST * dry_ns:
        return "data-loading"
    return CAUSES[most].verdict if dry[most] > _MOST * dry_ns else "mixed"


def _idle_by_cause(trace: Trace, every: Phases, phase_of_gaps: Integers) -> Integers:
    """Idle time of each phase by cause, shape (phases, causes): a gap counts where it ends."""
    gaps, own = every_gap(trace), unbroken(np.flatnonzero(phase_of_gaps >= 0))
    row = picked(phase_of_gaps, own)
    inside = np.maximum(picked(gaps.start_ns, own), picked(every.start_ns, row))
    length = np.maximum(picked(gaps.end_ns, own) - inside, 0)
    result = np.zeros(len(every) * len(CAUSES), np.int64)
    np.add.at(result, row * len(CAUSES) + picked(gaps.cause, own), length)
    return result.reshape(len(every), len(CAUSES))


def _idle_for_data(trace: Trace, every: Phases, phase_of_gaps: Integers) -> Integers:
    """Idle time of each phase in which the program waited for data or loaded it, by samples."""
    samples = idle_samples(trace)
    loading = np.isin(samples.doing, (DATA_WAIT, DATA_LOADING))
    # The gaps of samples are rows of the selected gaps.
    selected = np.flatnonzero(selected_operations(trace)[every_gap(trace).after])
    row = phase_of_gaps[selected[samples.gap[loading]]]
    time_ns = samples.time_ns[loading][row >= 0]
    return np.bincount(row[row >= 0], time_ns, minlength=len(every)).astype(np.int64)


def _phase_of_gaps(trace: Trace, every: Phases) -> Integers:
    """The phase in which each gap ends; −1 for processes without any."""
    gaps, ops = every_gap(trace), operations(trace)
    process, result = ops.process[gaps.after], np.full(len(gaps), -1, np.int64)
    for number in groups.different(every.process).tolist():
        rows = np.flatnonzero(every.process == number)
        own = np.flatnonzero(process == number)
        at = np.searchsorted(every.start_ns[rows], gaps.end_ns[own], side="right") - 1
        result[unbroken(own)] = picked(rows, np.maximum(at, 0))
    return result
