"""Bounds of a mean, and of the difference of two, by permutation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import NDArray

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
    if len(before) + len(after) > _MANY:
        return _normal_bounds(before, after, tail)
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if math.comb(len(first) + len(second), len(first)) <= _MOST_EXACT:
        return _order_statistics(_subset_differences(first, second), tail)
    return _order_statistics(_drawn_differences(first, second), tail)


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


def _subset_differences(before: Floats, after: Floats) -> Floats:
    pairs = [
        np.subtract.outer(_subset_sums(after, size), _subset_sums(before, size)).ravel() / size
        for size in range(1, min(len(before), len(after)) + 1)
    ]
    return np.concatenate(pairs) if pairs else np.zeros(0)


def _drawn_differences(before: Floats, after: Floats) -> Floats:
    pooled = np.concatenate([before, after])
    order = np.argsort(np.random.default_rng(17).random((_DRAWS, len(pooled))), axis=1)
    # A value changes sides where it is drawn into the place of one of the other side.
    is_before = order < len(before)
    given = is_before[:, len(before) :]
    taken = ~is_before[:, : len(before)]
    size = taken.sum(axis=1)
    sums = (taken * pooled[order[:, : len(before)]]).sum(axis=1)
    sums -= (given * pooled[order[:, len(before) :]]).sum(axis=1)
    differences: Floats = sums[size > 0] / size[size > 0]
    return differences


def _normal_bounds(before: Sequence[float], after: Sequence[float], tail: float) -> Bounds:
    if min(len(before), len(after)) < 2:
        return None, None
    error = math.hypot(*(stdev(side) / math.sqrt(len(side)) for side in (before, after)))
    return _around(fmean(after) - fmean(before), error, tail)


def _around(mean: float, error: float, tail: float) -> Bounds:
    reach = NormalDist().inv_cdf(1 - tail) * error
    return mean - reach, mean + reach
