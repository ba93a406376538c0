"""The late rank of simulated jobs and its cause; none where all ranks do the same.

`benchmarks/rank_error_rates.py` draws a thousand of each.
"""

import pytest

from tests.ranks.judgement import judge
from tests.ranks.simulated_jobs import SHAPES, balanced, with_straggler

JOBS, MOST_WRONG = 100, 1


@pytest.mark.slow
def test_the_late_rank_and_its_cause_are_named():
    wrong = []
    for seed in range(JOBS):
        judged = judge(with_straggler(seed), per_host=(8, 2)[seed % 2], losses=seed % 4 == 3)
        if not (judged.late_rank_named and judged.cause_named):
            wrong.append((seed, judged.job.shape, judged.job.fault, judged.stragglers[:1]))
    assert len(wrong) <= MOST_WRONG, wrong


@pytest.mark.slow
def test_nobody_is_named_where_all_ranks_do_the_same():
    wrong = []
    for seed in range(JOBS):
        judged = judge(balanced(seed), per_host=(8, 2)[seed % 2], losses=seed % 4 == 3)
        if judged.stragglers:
            wrong.append((seed, judged.job.shape, judged.stragglers[:1]))
    assert len(wrong) <= MOST_WRONG, wrong


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sleep_is_found_at_its_line(shape: str):
    judged = judge(with_straggler(500, shape, "sleep"))
    assert judged.late_rank_named
    assert judged.cause_named
    assert judged.place_named
