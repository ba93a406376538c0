"""The certainty of a difference of step times: the run is the sampling unit, not the step."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.comparison.comparison import Certainty
from traceview.comparison.figures import RunFigures
from traceview.statistics import difference_bounds, mann_whitney

LEVEL = 0.95


def step_time_certainty(
    before: Sequence[RunFigures], after: Sequence[RunFigures], level: float = LEVEL
) -> Certainty:
    """The certainty of the difference of the mean step times of two sides.

    With one run on both sides the interval is that of their steps, which differ less than runs do:
    a lower bound of the noise. From 95 % and runs on both sides no interval exists below 4 and 4
    (or 3 and 5, 2 and 8, 1 and 39).
    """
    if len(before) == len(after) == 1:
        return _of(before[0].step_ns, after[0].step_ns, (1, 1), level)
    times = [[run.window_ns / run.steps for run in side] for side in (before, after)]
    return _of(times[0], times[1], (len(before), len(after)), level)


def _of(
    before: Sequence[float], after: Sequence[float], runs: tuple[int, int], level: float
) -> Certainty:
    low, high = difference_bounds(before, after, (1 - level) / 2)
    is_of_steps = runs == (1, 1)
    return Certainty(
        basis=("none" if low is None else "steps") if is_of_steps else "runs",
        runs_before=runs[0],
        runs_after=runs[1],
        level=level,
        low_ns=low,
        high_ns=high,
        p_value=None if is_of_steps else mann_whitney(before, after),
    )
