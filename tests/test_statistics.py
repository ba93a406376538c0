"""Permutation tests against brute force over all ways to divide the values."""

import math
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base import statistics
from traceview.base.statistics import (
    _drawn_differences,
    _order_statistics,
    difference_bounds,
    fewest_runs,
    mann_whitney,
    mean_bounds,
    runs_to_decide,
    t_quantile,
)

values = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=4)


def share_as_large(before, after):
    """Share of all divisions whose difference of means is at least as large as the observed."""
    pooled, size = [*before, *after], len(before)
    observed = fmean(after) - fmean(before)
    whole = sum(pooled)
    differences = [
        (whole - sum(pooled[i] for i in chosen)) / len(after)
        - sum(pooled[i] for i in chosen) / size
        for chosen in combinations(range(len(pooled)), size)
    ]
    return sum(each >= observed - 1e-9 for each in differences) / len(differences)


@given(values, values, st.sampled_from([0.025, 0.05, 0.1, 0.3, 0.5]))
def test_bounds_are_where_the_permutation_test_turns(before, after, tail):
    """Just inside the bounds the test does not refute a shift, just outside it does."""
    low, high = difference_bounds(before, after, tail)
    if low is None:
        assert high is None
        assert math.comb(len(before) + len(after), len(after)) * tail < 1
        return
    shares = {
        at: share_as_large(before, [each - at for each in after]) for at in (low - 1e-6, low + 1e-6)
    }
    assert shares[low - 1e-6] <= tail + 1e-9 < shares[low + 1e-6] + 1e-12 or tail == 0.5
    mirrored = difference_bounds([-each for each in before], [-each for each in after], tail)
    assert mirrored == (-high, -low)


@given(values, values)
def test_the_difference_of_the_means_is_between_the_bounds(before, after):
    low, high = difference_bounds(before, after, 0.1)
    if low is not None:
        assert low - 1e-9 <= fmean(after) - fmean(before) <= high + 1e-9


def test_drawn_bounds_are_near_those_of_all_ways(monkeypatch):
    draw = np.random.default_rng(1)
    before, after = draw.normal(10, 1, 7), draw.normal(10.5, 1, 7)
    exact = difference_bounds(before, after, 0.025)
    drawn = _order_statistics(_drawn_differences(before, after), 0.025)
    assert drawn == pytest.approx(exact, abs=0.05)
    before, after = draw.normal(10, 1, 60), draw.normal(10.5, 1, 60)
    drawn = _order_statistics(_drawn_differences(before, after), 0.025)
    monkeypatch.setattr(statistics, "_MANY", 0)
    assert drawn == pytest.approx(difference_bounds(before, after, 0.025), abs=0.05)


def test_three_runs_prove_one_bound_at_95_percent_and_four_an_interval():
    assert fewest_runs(0.05) == 3
    assert fewest_runs(0.025) == 4
    assert fewest_runs(0.5) == 1
    assert difference_bounds([1, 2, 3], [4, 5, 6], 0.05) == (1, 5)
    assert difference_bounds([1, 2, 3], [4, 5, 6], 0.025) == (None, None)
    assert difference_bounds([5], [8], 0.5) == (3, 3)
    assert difference_bounds([], [8], 0.05) == (None, None)


@given(st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=7))
def test_bounds_of_a_mean_are_those_of_flipped_signs(sample):
    low, high = mean_bounds(sample, 0.05)
    if low is None:
        assert 2 ** len(sample) * 0.05 < 1
        return
    for shift, is_refuted in ((low - 1e-6, True), (low + 1e-6, False)):
        deviations = [each - shift for each in sample]
        flips = np.array(np.meshgrid(*[[-1, 1]] * len(sample))).reshape(len(sample), -1)
        sums = np.array(deviations) @ flips
        assert ((sums >= sum(deviations) - 1e-9).mean() <= 0.05) == is_refuted
    assert mean_bounds([-each for each in sample], 0.05) == (-high, -low)


@given(values, values)
def test_mann_whitney_is_the_share_of_all_ranks_that_are_as_uneven(before, after):
    pooled = [*before, *after]
    ranks = [sum(b < a for b in pooled) + (sum(b == a for b in pooled) + 1) / 2 for a in pooled]
    expected = len(before) * (len(pooled) + 1) / 2
    sums = [
        sum(ranks[i] for i in chosen) for chosen in combinations(range(len(pooled)), len(before))
    ]
    observed = abs(sum(ranks[: len(before)]) - expected)
    assert mann_whitney(before, after) == pytest.approx(
        sum(abs(each - expected) >= observed for each in sums) / len(sums)
    )


def test_mann_whitney_of_many_values_is_normal(monkeypatch):
    draw = np.random.default_rng(2)
    before, after = draw.normal(0, 1, 30).round(1), draw.normal(0.5, 1, 30).round(1)
    exact = mann_whitney(before, after)
    monkeypatch.setattr(statistics, "_MOST_EXACT_VALUES", 0)
    assert mann_whitney(before, after) == pytest.approx(exact, abs=0.002)
    assert mann_whitney([1.0] * 40, [1.0] * 40) == 1.0
    assert mann_whitney([], [1.0]) == 1.0


def test_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(3)
    for size in (3, 5, 9, 80):
        before, after = draw.normal(0, 1, size), draw.normal(0.5, 1, size)
        method = "exact" if 2 * size <= statistics._MOST_EXACT_VALUES else "asymptotic"
        assert mann_whitney(before, after) == pytest.approx(
            stats.mannwhitneyu(before, after, method=method).pvalue, rel=1e-9
        )
    for freedom in (4, 8, 20):
        assert t_quantile(0.95, freedom) == pytest.approx(stats.t.ppf(0.95, freedom), rel=0.01)


@pytest.mark.parametrize("distance", [0.7, 1.5, 3.0])
def test_the_number_of_runs_named_decides_mostly(distance):
    """The runs named for a true difference decide in about seven of ten cases."""
    draw = np.random.default_rng(4)
    sample = [float(each) for each in (-1, -0.5, 0, 0.5, 1)]
    scatter = float(np.std(sample, ddof=1))
    runs = runs_to_decide(sample, [each + distance for each in sample], 0.0, 0.05)
    assert runs is not None
    decided = 0
    for _ in range(100):
        sides = draw.normal(0, scatter, (2, runs))
        low, _high = difference_bounds(sides[0], sides[1] + distance, 0.05)
        decided += low is not None and low > 0
    assert decided >= 55


def test_runs_that_tell_no_scatter_or_would_be_too_many_are_not_named():
    assert runs_to_decide([1.0], [2.0], 0.0, 0.05) is None
    assert runs_to_decide([1.0, 2.0], [1.0, 2.0], 0.0, 0.05) is None
    assert runs_to_decide([1.0, 1.0], [2.0], 0.0, 0.05) == 3


@pytest.mark.parametrize("runs", [4, 5, 8, 12])
def test_false_alarms_are_at_the_stated_level(runs):
    """Skewed noise: an interval at 95 % excludes zero in at most 5 % of equal pairs."""
    draw = np.random.default_rng(5)
    false = 0
    for before, after in draw.lognormal(0, 0.5, (300, 2, runs)):
        low, high = difference_bounds(before, after, 0.025)
        false += not low <= 0 <= high
    assert false <= 300 * 0.05 + 2 * math.sqrt(300 * 0.05 * 0.95)
