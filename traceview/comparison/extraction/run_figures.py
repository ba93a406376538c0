"""The figures of a run, from its trace."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np

from traceview import groups
from traceview.comparison.extraction.counts import counts_of
from traceview.comparison.extraction.environment import environment_of
from traceview.comparison.extraction.named_figures import named_figures
from traceview.comparison.extraction.parts import step_parts, work_groups
from traceview.comparison.extraction.window import run_window
from traceview.comparison.extraction.work import window_work
from traceview.comparison.figures import RunFigures
from traceview.facts.operations.operations import operations
from traceview.facts.steps.inferred import with_steps
from traceview.facts.steps.steps import step_of_operations
from traceview.tables import Integers
from traceview.trace import Selection, Trace

MOST_IN_SEQUENCE = 20_000
"""Operations of a step, or of a run without steps, that the sequence lists at most."""


def figures_of(trace: Trace) -> RunFigures:
    """The figures of a recording, as `traceview.load` returns it.

    Raises ComparisonRefusedError where no GPU work was recorded.
    """
    trace = with_steps(trace.restricted(Selection()) if trace.selection else trace)
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
    )


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
