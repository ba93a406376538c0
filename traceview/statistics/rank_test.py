"""The U test of Mann and Whitney, with ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

_MOST_EXACT = 60


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided p-value of the U test: the chance of ranks at least as uneven without a difference.

    Exact, also with ties (by average ranks), up to 60 values; else normal, with the tie and
    continuity corrections. 1 where a side is empty.
    """
    sizes = len(before), len(after)
    if not all(sizes):
        return 1.0
    # Twice the average ranks, so that those of ties are whole.
    doubled = _doubled_ranks([*before, *after])
    observed = sum(doubled[: sizes[0]]) - sizes[0] * (sum(sizes) + 1)
    if sum(sizes) <= _MOST_EXACT:
        return _exact_p(doubled, sizes[0], abs(observed))
    return _normal_p(doubled, sizes, abs(observed) / 2)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    array = np.asarray(values, np.float64)
    ordered = np.sort(array)
    below = np.searchsorted(ordered, array, side="left")
    upto = np.searchsorted(ordered, array, side="right")
    return [int(rank) for rank in below + upto + 1]


def _exact_p(doubled: Sequence[int], size: int, observed: int) -> float:
    """The share of all choices of `size` ranks that are as far from their expectation."""
    # ways[n][s]: choices of n of the ranks so far that sum to s; whole numbers of any size.
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(size))]
    for rank in doubled:
        for taken in range(size, 0, -1):
            with_rank = ways[taken]
            for total, number in ways[taken - 1].items():
                with_rank[total + rank] = with_rank.get(total + rank, 0) + number
    expected = size * (len(doubled) + 1)
    far = sum(number for total, number in ways[size].items() if abs(total - expected) >= observed)
    return far / math.comb(len(doubled), size)


def _normal_p(doubled: Sequence[int], sizes: tuple[int, int], distance: float) -> float:
    count = sum(sizes)
    _, ties = np.unique(np.asarray(doubled), return_counts=True)
    tied = sum(int(number) ** 3 - int(number) for number in ties) / (count * (count - 1))
    variance = sizes[0] * sizes[1] / 12 * (count + 1 - tied)
    if variance <= 0:
        return 1.0
    return min(2 * NormalDist().cdf(-max(distance - 0.5, 0) / math.sqrt(variance)), 1.0)
