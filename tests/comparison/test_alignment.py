"""Alignment of sequences, against a table of longest common subsequences."""

import itertools
import random

import pytest

from traceview.traces.comparison.renames import MOST_EDITS, align


def longest_common(before: list[int], after: list[int]) -> int:
    best = [[0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for i, one in enumerate(before):
        for j, other in enumerate(after):
            step = best[i][j] + 1 if one == other else max(best[i][j + 1], best[i + 1][j])
            best[i + 1][j + 1] = step
    return best[-1][-1]


@pytest.mark.parametrize("seed", range(300))
def test_as_many_pairs_as_can_be(seed):
    draw = random.Random(seed)
    before, after = ([draw.randrange(4) for _ in range(draw.randrange(14))] for _ in range(2))
    pairs = align(before, after)
    assert all(before[i] == after[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
    assert len(pairs) == longest_common(before, after)


def test_sequences_that_differ_in_nearly_all_are_given_up():
    assert align([0] * MOST_EDITS, [1] * MOST_EDITS) is None
    assert align([0] * MOST_EDITS, [0] * MOST_EDITS) is not None
