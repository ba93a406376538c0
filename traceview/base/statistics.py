"""Tests and intervals for small samples: what the runs of a program can prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import NDArray

# Bounds of a mean, and of the difference of two, by permutation.

Floats = NDArray[np.float64]
Bounds = tuple[float | None, float | None]
"""Low and high; None where there are too few values to prove any bound."""

_MOST_EXACT = 20_000
_DRAWS = 20_000
_MANY, _MANY_SIGNS = 100, 14


def difference_bounds(before: Sequence[float], after: Sequence[float], tail: float) -> Bounds:
    """Bounds of the difference of two means; each is wrong with a chance of at most `tail`.

    A difference is refuted where as few as `tail` of all ways to divide the pooled values into two
    sides make one as large. Exchanging a subset of one side for one of equal size of the other
    keeps the difference as large exactly where the means of the two subsets differ by no more, so
    each bound is an order statistic of the differences of all pairs of subset means. Up to 20,000
    ways are enumerated, else drawn at random from a fixed seed, and from 100 values on the bounds
    are Welch's with the normal distribution.
    """
    count = len(before) + len(after)
    if count > _MANY:
        if min(len(before), len(after)) < 2:
            return None, None
        error = math.hypot(*(stdev(side) / math.sqrt(len(side)) for side in (before, after)))
        return _around(fmean(after) - fmean(before), error, tail)
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if math.comb(count, len(first)) > _MOST_EXACT:
        return _order_statistics(_drawn_differences(first, second), tail)
    pairs = [
        np.subtract.outer(_subset_sums(second, size), _subset_sums(first, size)).ravel() / size
        for size in range(1, min(len(first), len(second)) + 1)
    ]
    return _order_statistics(np.concatenate(pairs) if pairs else np.zeros(0), tail)


def mean_bounds(values: Sequence[float], tail: float) -> Bounds:
    """Bounds of the mean of one sample, from all ways to flip the signs of its deviations.

    The bounds are order statistics of the means of all subsets; exact for symmetric noise. From 14
    values on they are those of the normal distribution.
    """
    if len(values) >= _MANY_SIGNS:
        return _around(fmean(values), stdev(values) / math.sqrt(len(values)), tail)
    sample = np.asarray(values, np.float64)
    sizes = range(1, len(sample) + 1)
    means = [_subset_sums(sample, size) / size for size in sizes]
    return _order_statistics(np.concatenate(means), tail) if means else (None, None)


def _order_statistics(differences: Floats, tail: float) -> Bounds:
    """The bounds, from the differences of all divisions except the observed one."""
    kept = math.floor((len(differences) + 1) * tail + 1e-9)
    if kept < 1:
        return None, None
    place = min(kept, len(differences)) - 1
    ordered = np.sort(differences)
    return float(ordered[place]), float(ordered[-1 - place])


def _subset_sums(values: Floats, size: int) -> Floats:
    sums: Floats = values[_subsets(len(values), size)].sum(axis=1)
    return sums


@cache
def _subsets(count: int, size: int) -> NDArray[np.intp]:
    return np.array(list(combinations(range(count), size)), np.intp)


def _drawn_differences(before: Floats, after: Floats) -> Floats:
    pooled = np.concatenate([before, after])
    order = np.argsort(np.random.default_rng(17).random((_DRAWS, len(pooled))), axis=1)
    # A value changes sides where it is drawn into the place of one of the other side.
    is_before = order < len(before)
    to_after = is_before[:, len(before) :]
    to_before = ~is_before[:, : len(before)]
    size = to_before.sum(axis=1)
    sums = (to_before * pooled[order[:, : len(before)]]).sum(axis=1)
    sums -= (to_after * pooled[order[:, len(before) :]]).sum(axis=1)
    differences: Floats = sums[size > 0] / size[size > 0]
    return differences


def _around(mean: float, error: float, tail: float) -> Bounds:
    reach = NormalDist().inv_cdf(1 - tail) * error
    return mean - reach, mean + reach


# The U test of Mann and Whitney, with ties.

_MOST_EXACT_VALUES = 60


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided p-value of the U test: the chance of ranks at least as uneven without a difference.

    Exact, also with ties (by average ranks), up to 60 values; else normal, with the tie and
    continuity corrections. 1 where a side is empty.
    """
    size, count = len(before), len(before) + len(after)
    if not 0 < size < count:
        return 1.0
    values = np.asarray([*before, *after], np.float64)
    ordered = np.sort(values)
    # Twice the average ranks, so that those of ties are whole.
    doubled = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    doubled += 1
    observed = abs(int(doubled[:size].sum()) - size * (count + 1))
    if count <= _MOST_EXACT_VALUES:
        return _exact_p(doubled.tolist(), size, observed)
    _, ties = np.unique(doubled, return_counts=True)
    tied = sum(number**3 - number for number in ties.tolist()) / (count * (count - 1))
    variance = size * (count - size) / 12 * (count + 1 - tied)
    if variance <= 0:
        return 1.0
    distance = max(observed / 2 - 0.5, 0)
    return min(2 * NormalDist().cdf(-distance / math.sqrt(variance)), 1.0)


def _exact_p(doubled: Sequence[int], size: int, observed: int) -> float:
    """The share of all choices of `size` ranks that are as far from their expectation."""
    # ways[n][s]: choices of n of the ranks so far that sum to s; whole numbers of any size.
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(size))]
    for rank in doubled:
        for number in range(size, 0, -1):
            with_rank = ways[number]
            for total, choices in ways[number - 1].items():
                with_rank[total + rank] = with_rank.get(total + rank, 0) + choices
    expected = size * (len(doubled) + 1)
    far = sum(choices for total, choices in ways[size].items() if abs(total - expected) >= observed)
    return far / math.comb(len(doubled), size)


# The number of runs that would prove a difference.

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
    freedom = sum(max(len(side) - 1, 0) for side in (before, after))
    if not freedom:
        return None
    squares = sum(stdev(side) ** 2 * (len(side) - 1) for side in (before, after) if len(side) > 1)
    scatter = math.sqrt(squares / freedom)
    distance = abs(fmean(after) - fmean(before) - limit)
    for runs in range(fewest_runs(tail), MOST_RUNS + 1):
        reach = t_quantile(1 - tail, 2 * runs - 2) * scatter * math.sqrt(2 / runs)
        if reach <= distance * _REACH:
            return runs
    return None


def t_quantile(probability: float, freedom: int) -> float:
    """Student's quantile by the first terms of its expansion (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
