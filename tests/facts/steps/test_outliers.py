"""Warm-up and outliers of many loops at once are those of each loop by itself."""

from itertools import groupby, takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.base import groups
from traceview.traces.facts.steps.series import classify


def limit_of(took):
    median = float(np.median(took))
    deviation = 1.4826 * float(np.median([abs(each - median) for each in took]))
    return round(median), round(median + max(5 * deviation, 0.1 * median))


def runs(flags):
    """The places of each run of flags that are set."""
    places = enumerate(flags)
    return [[at for at, _ in run] for is_set, run in groupby(places, lambda p: p[1]) if is_set]


def plainly(took):
    """Warm-up steps, outliers, median and limit of one loop."""
    early = 0
    if len(took) >= 3:
        half = len(took) // 2
        _, limit = limit_of(took[half:])
        while early < half and took[early] > limit:
            early += 1
    median, limit = limit_of(took[early:])
    comparable = len(took) - early >= 5
    outliers = [comparable and at >= early and each > limit for at, each in enumerate(took)]
    for run in runs(outliers):
        # What outliers take longer, the shorter steps right behind them may have given them.
        after = list(takewhile(lambda each: each < 0.9 * median, took[run[-1] + 1 :]))
        longer = sum(took[at] - median for at in run)
        if 2 * sum(median - each for each in after) >= longer:
            for at in run:
                outliers[at] = False
    return [at < early for at in range(len(took))], outliers, median, limit


LOOPS = st.lists(
    st.lists(st.sampled_from([0, 1, 9, 10, 11, 12, 15, 100, 2**40]), min_size=1, max_size=14),
    max_size=6,
)


@settings(max_examples=300)
@given(LOOPS)
def test_each_loop_is_judged_by_itself(loops):
    loop = np.repeat(np.arange(len(loops)), [len(took) for took in loops])
    judged = classify(np.array([each for took in loops for each in took], np.int64), loop)

    for number, took in enumerate(loops):
        mine = loop == number
        warm_up, outliers, median, limit = plainly(took)
        assert judged.warm_up[mine].tolist() == warm_up
        assert judged.outlier[mine].tolist() == outliers
        assert (judged.median_ns[number], judged.limit_ns[number]) == (median, limit)


@settings(max_examples=200)
@given(LOOPS, st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_medians_and_quantiles_of_groups_are_those_of_numpy(loops, share):
    """Of groups in any order, some of them empty."""
    ids = np.repeat(np.arange(len(loops)) * 2, [len(took) for took in loops])[::-1].copy()
    values = np.array([each for took in loops for each in took], np.int64)[::-1].copy()
    count = 2 * len(loops)

    median = groups.medians(ids, count, values)
    quantile = groups.quantile(ids, count, values, share)

    for number, took in enumerate(loops):
        assert median[2 * number] == np.median(took)
        assert quantile[2 * number] == np.quantile(took, share)
        assert (median[2 * number + 1], quantile[2 * number + 1]) == (0, 0)


def test_steps_that_get_ever_shorter_are_no_warm_up():
    """An elimination works on a smaller matrix in each step; a compiler ends after ten steps."""
    shrinking = [(40 - step) ** 2 for step in range(40)]
    compiled = [100] * 10 + [10] * 30
    judged = classify(np.array(shrinking + compiled, np.int64), np.repeat([0, 1], 40))
    assert judged.warm_up.tolist() == [False] * 40 + [True] * 10 + [False] * 30


def test_steps_that_get_shorter_until_their_launch_is_longest_are_no_warm_up():
    """The later half of an elimination may take as long as its launches do; warm-up is no slope."""
    levelling = [max((40 - step) ** 2, 400) for step in range(80)]
    flat = [900] * 20 + [400] * 60
    judged = classify(np.array(levelling + flat, np.int64), np.repeat([0, 1], 80))
    assert judged.warm_up.tolist() == [False] * 80 + [True] * 20 + [False] * 60
    assert not judged.outlier.any()
