"""Judges a trial: are its results those of the program, and is it faster?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from math import ceil
from statistics import fmean, median

from traceview.base import statistics
from traceview.base.records import record
from traceview.base.statistics import Bounds
from traceview.trials.remedies import Outcome
from traceview.trials.remedies.base import ROUNDING
from traceview.trials.tryout.planned import Planned
from traceview.trials.tryout.spec import BLOCK, SKIPPED, RunResult, Site, Spec

ERROR = 0.025
"""Chance that each bound of a difference is wrong, over all looks at it."""
WORTH = 0.01
"""Share of a step that a gain must have to be kept: smaller ones hide in the scatter between runs
(docs/gate.md: 0.7 to 1 %), and nobody notices them."""
NOISE_FACTOR = 3.0
"""Two unchanged runs show one difference of the program's own; others may be some times larger."""
REFERENCE = NOISE_FACTOR * ROUNDING
"""Furthest, per step, that rounding in fp32 takes a program from itself in float64: the difference
of two orders of its sums, with the margin that two unchanged runs get. Random numbers that are
drawn in float64 are others, and differ by as much as what a remedy may have changed."""
NORMS_FACTOR = 8.0
"""Gradients pass every layer once more: under autocast to bf16, losses of four small networks
differed by up to 0.1 % in eight steps, gradient norms of one with BatchNorm by up to 5 %."""
LEAST_STEPS = 4


@record
class StepDifference:
    """The difference of a step with and without the remedy, in ns, and its 95 % interval.

    `runs` is the number of runs with the remedy, `more_runs` how many more would probably decide,
    None where that is not known or above 200.
    """

    base_ns: float
    delta_ns: float
    low_ns: float | None
    high_ns: float | None
    runs: int
    more_runs: int | None = None

    @property
    def delta_pct(self) -> float:
        """The difference as a share of the step before, in percent."""
        return 100 * self.delta_ns / self.base_ns


@record
class Trial:
    """The outcome of a trial. `reason` says why it failed, was rejected or changes results.

    `results` says whether the results are equal, `sites` are the user's calls (see `RunResult`).
    """

    planned: Planned
    outcome: Outcome
    reason: str = ""
    results: str = ""
    measured: StepDifference | None = None
    sites: tuple[Site, ...] = ()


# Results.


def deviation(one: RunResult, other: RunResult) -> float:
    """The largest relative difference of losses, and ÷ 8 of gradient norms, per step until then.

    Each step rounds, and the next one starts from there: so the difference of step n is divided by
    n + 1. Infinite where one run has other values than numbers, or fewer of them.
    """
    largest = 0.0
    figures = ((one.losses, other.losses, 1.0), (one.norms, other.norms, NORMS_FACTOR))
    for before, after, factor in figures:
        if len(before) != len(after):
            return math.inf
        scale = median([abs(value) for _, value in before]) if before else 0.0
        for (step, value), (_, changed) in zip(before, after, strict=True):
            if value == changed or (math.isnan(value) and math.isnan(changed)):
                continue
            relative = abs(changed - value) / max(abs(value), scale, 1e-30) / factor
            # Before the first step of the optimizer the number of the step is negative.
            steps = max(step, 0) + 1
            largest = max(largest, relative / steps) if relative < math.inf else math.inf
    return largest


@record
class ResultComparison:
    """Whether a trial's results are those of the program, None if not yet known, and why.

    `differs` is their deviation from it, per step.
    """

    equal: bool | None
    text: str = ""
    differs: float = 0.0


def compare_results(
    planned: Planned, base: Sequence[tuple[Spec, RunResult]], trial: tuple[Spec, RunResult]
) -> ResultComparison:
    """Compare the results of a trial with those of the program.

    Compared are runs with equal seeds. Allowed is what the remedy may change per step, the rounding
    of the program itself, and three times the difference of two unchanged runs. A remedy after
    which the program draws other random numbers may differ as much as runs with other seeds: that
    shows that it learns alike, not that it computes the same.
    """
    spec, result = trial
    seeded = [each for own, each in base if own.seed == spec.seed]
    if not seeded or not result.losses:
        return ResultComparison(None)
    differs = deviation(seeded[0], result)
    same_seed = [deviation(a, b) for (s, a), (t, b) in combinations(base, 2) if s.seed == t.seed]
    if not differs:
        return ResultComparison(True, "equal")
    allowed = max(planned.bound, seeded[0].precision)
    if differs <= allowed:
        text = f"within {_share(differs)} (allowed: {_share(allowed)})"
        return ResultComparison(True, text, differs)
    if not same_seed or max(same_seed) == math.inf:
        return ResultComparison(None)
    noise = max(same_seed)
    if differs <= NOISE_FACTOR * noise:
        text = f"within {_share(differs)} (unchanged runs: {_share(noise)})"
        return ResultComparison(True, text, differs)
    limit, of_what = max(allowed, NOISE_FACTOR * noise), ""
    if planned.reseeds:
        seeds = [deviation(a, b) for (s, a), (t, b) in combinations(base, 2) if s.seed != t.seed]
        if not seeds:
            return ResultComparison(None)
        if differs <= max(seeds) < math.inf:
            text = f"differ by {_share(differs)}, no more than two seeds do ({_share(max(seeds))})"
            return ResultComparison(True, text, differs)
        limit, of_what = max(limit, max(seeds)), " by two seeds"
    return ResultComparison(
        False, f"{_share(differs)} per step, allowed{of_what} {_share(limit)}", differs
    )


def held_to(
    reference: RunResult, base: RunResult, result: RunResult, differs: float
) -> ResultComparison | None:
    """Whether results are about as near to those in float64 as the program's own; None if not.

    A reference that is further off than rounding is none: it may have drawn other numbers.
    """
    own, other = deviation(reference, base), deviation(reference, result)
    if own > REFERENCE or other > NOISE_FACTOR * own:
        return None
    text = f"within {_share(other)} of float64 (the program: {_share(own)})"
    return ResultComparison(True, text, differs)


def _share(part: float) -> str:
    if part == math.inf:
        return "other values"
    if part >= 1:
        return f"{100 * part:,.0f} %"
    return f"{100 * part:.2g} %" if part >= 1e-5 else f"{part:.0e}"


# Times.


def step_ns(spec: Spec, result: RunResult) -> float | None:
    """Mean time of the steps behind the warm-up; None with fewer than four.

    Where a program ends early its first half is the warm-up. The mean, not the median: a wait in
    every tenth step is part of what a remedy saves.
    """
    times = [time for _, time in result.steps]
    times = times[min(spec.warmup, len(times) // 2) :][: spec.steps]
    return fmean(times) if len(times) >= LEAST_STEPS else None


def blocks(spec: Spec, result: RunResult) -> tuple[list[float], list[float]]:
    """Mean step of each block without and with the remedies, around the mean of the run."""
    time_of = dict(result.steps)
    sides: tuple[list[float], list[float]] = [], []
    for first in range(spec.warmup, spec.last_step, BLOCK):
        steps = range(first + SKIPPED, first + BLOCK)
        if all(step in time_of for step in steps):
            sides[spec.is_on(first)].append(fmean(time_of[step] for step in steps))
    return sides


def measured(
    before: Sequence[float], after: Sequence[float], tail: float, runs: int, per_run: int = 1
) -> StepDifference:
    """The difference of two samples, of which each run gave `per_run` values a side."""
    base, delta = fmean(before), fmean(after) - fmean(before)
    low, high = statistics.difference_bounds(before, after, tail)
    needed = [
        statistics.runs_to_decide(before, after, limit, tail) for limit in (0.0, -WORTH * base)
    ]
    # Values of one side that are likely to place the difference on one side of the limit.
    least = min((each for each in needed if each), default=None)
    more = None if least is None else max(ceil(least / per_run) - runs, 1)
    return StepDifference(base, delta, low, high, runs, more)


def judged(m: StepDifference) -> Outcome:
    """What the interval of a difference proves."""
    bounds: Bounds = (m.low_ns, m.high_ns)
    low, high = bounds
    worth = WORTH * m.base_ns
    if high is not None and high < 0 and -m.delta_ns >= worth:
        return "keep"
    if low is not None and low > 0:
        return "slower" if m.delta_ns >= worth else "no gain"
    return "no gain" if low is not None and low > -worth else "undecided"
