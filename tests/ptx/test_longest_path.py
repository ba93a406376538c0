"""The heaviest way through a function, also against trying all ways."""

import random

import pytest

from traceview.ptx.longest_path import heaviest
from traceview.ptx.loops import Jump


def test_a_straight_line_is_its_sum():
    assert heaviest([1, 2, 3], []) == 6
    assert heaviest([], []) == 0


def test_of_two_branches_the_heavier_counts():
    # if (p) { 10 } else { 3 }; 1
    jumps = [Jump(0, (3,), True), Jump(2, (4,), False)]
    assert heaviest([0, 10, 0, 3, 1], jumps) == 11
    assert heaviest([0, 2, 0, 3, 1], jumps) == 4


def test_an_early_end_takes_nothing_away():
    assert heaviest([0, 4, 4, 0], [Jump(0, (3,), True), Jump(3, (), False)]) == 8


def test_what_nobody_comes_to_does_not_count():
    assert heaviest([1, 0, 50, 1], [Jump(1, (3,), False)]) == 2


def test_a_loop_that_weighs_is_not_told_and_one_that_does_not_is():
    back = [Jump(2, (1,), True)]
    assert heaviest([1, 5, 0, 1], back) is None
    assert heaviest([1, 0, 0, 1], back) == 2
    assert heaviest([5, 0], [Jump(0, (0,), True)]) is None


def test_a_cycle_with_two_ways_in_is_one_too():
    jumps = [Jump(0, (2,), True), Jump(3, (1,), True)]
    assert heaviest([0, 1, 0, 0, 0], jumps) is None


def test_deep_functions_do_not_overflow_a_stack():
    count = 20_000
    jumps = [Jump(at, (at + 1,), True) for at in range(count)]
    assert heaviest([1] * count, jumps) == count


@pytest.mark.parametrize("seed", range(30))
def test_as_if_all_ways_were_tried(seed):
    dice = random.Random(seed)
    count = 9
    jumps = [
        Jump(at, tuple(dice.sample(range(at + 1, count + 1), 1)), dice.random() < 0.6)
        for at in sorted(dice.sample(range(count), 4))
    ]
    weights = [dice.randrange(5) for _ in range(count)]
    assert heaviest(weights, jumps) == _by_trying(0, weights, {jump.at: jump for jump in jumps})


def _by_trying(at, weights, jumps):
    if at == len(weights):
        return 0
    jump = jumps.get(at, Jump(at, (), True))
    after = [*jump.targets, *([at + 1] if jump.falls_through else [])]
    return weights[at] + max((_by_trying(n, weights, jumps) for n in after), default=0)
