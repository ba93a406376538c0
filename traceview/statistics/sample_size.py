"""The number of runs that would prove a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

MOST_RUNS = 200
"""Where more runs are needed the difference is too close to the limit to tell."""

_REACH = 0.75


def fewest_runs(tail: float) -> int:
    """The fewest runs per side for which a bound with error probability `tail` exists."""
    sizes = range(1, MOST_RUNS)
    return next((n for n in sizes if math.comb(2 * n, n) * tail >= 1 - 1e-9), MOST_RUNS)


def runs_to_decide(
    before: Sequence[float], after: Sequence[float], limit: float, tail: float
) -> int | None:
    """The runs per side at which the difference is likely to be proven above or below `limit`.

    With that many, the bound is expected to cover three quarters of the distance to the limit,
    which decides in some 7 of 10 cases. None if no side has two runs, so that the scatter is
    unknown, and above 200.
    """
    scatter = _pooled_deviation(before, after)
    if scatter is None:
        return None
    distance = abs(fmean(after) - fmean(before) - limit)
    for runs in range(fewest_runs(tail), MOST_RUNS + 1):
        reach = _t_quantile(1 - tail, 2 * runs - 2) * scatter * math.sqrt(2 / runs)
        if reach <= distance * _REACH:
            return runs
    return None


def _pooled_deviation(before: Sequence[float], after: Sequence[float]) -> float | None:
    freedom = sum(max(len(side) - 1, 0) for side in (before, after))
    if not freedom:
        return None
    squares = sum(stdev(side) ** 2 * (len(side) - 1) for side in (before, after) if len(side) > 1)
    return math.sqrt(squares / freedom)


def _t_quantile(probability: float, freedom: int) -> float:
    """Student's quantile by the first terms of its expansion (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
