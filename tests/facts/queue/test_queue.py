"""Queue waits, depths and held-back calls, on arrays."""

import numpy as np

from tests.facts.arrays import api_calls, ints, operations
from traceview.base.intervals import Intervals
from traceview.traces.facts.launches import (
    FULL,
    excess_time,
    held_time,
    plateau,
    queue_depth,
    queue_entries,
    queue_waits,
)

OPS = operations([(8, 20), (20, 30), (30, 45)])
CALLS = api_calls([(0, 2), (2, 4), (4, 31)])
EVERY = np.ones(3, bool)


def test_a_queue_wait_is_never_negative():
    assert queue_waits(OPS, CALLS).tolist() == [6, 16, 0]


def test_work_without_a_call_has_no_wait_and_no_depth():
    ops = operations([(8, 20)], call=[-1])

    assert queue_waits(ops, CALLS).tolist() == [-1]
    assert queue_depth(ops, CALLS, np.array([0]), EVERY[:1]) == (0, 0.0)


def test_depth_counts_from_the_launch_call_to_the_end_of_the_work():
    # 1 from 0, 2 from 2, 3 from 4 to 20, 2 to 30, 1 to 45.
    area = 1 * 2 + 2 * 2 + 3 * 16 + 2 * 10 + 1 * 15
    assert queue_depth(OPS, CALLS, np.arange(3), EVERY) == (3, area / 45)


def test_the_nodes_of_a_graph_are_one_entry():
    ops = operations([(8, 20), (20, 30), (30, 45)], call=[0, 0, 1])
    call, entries = queue_entries(ops, CALLS, np.arange(3))

    assert (call.tolist(), entries.tolist()) == ([0, 1], [1, 2])


def test_calls_at_the_top_of_a_deep_queue_are_before_a_full_one():
    depth = ints([10, FULL - 100, FULL + 22, FULL + 23])
    full, calm = plateau([(np.arange(4), depth), (ints([4]), ints([900]))], calls=5)

    assert full.tolist() == [False, False, True, True, False]
    assert calm.tolist() == [True, False, False, False, False]


def test_a_queue_that_is_not_deep_is_not_full():
    full, _ = plateau([(np.arange(2), ints([10, FULL - 1]))], calls=2)

    assert not full.any()


def test_what_exceeds_the_median_of_calm_calls_far_was_held_back():
    duration = ints([4, 4, 6, 17, 16, 90])
    name, full = ints([0, 0, 0, 0, 0, 1]), np.array([False, False, False, True, True, True])

    # 16 is no more than four times the median of 4; of the last name no call was calm.
    assert excess_time(duration, name, full, ~full).tolist() == [0, 0, 0, 13, 0, 0]


def test_held_time_is_that_of_calls_that_enqueue():
    calls = api_calls([(0, 10), (10, 30), (10, 30)], thread=[0, 0, 1])
    full = {0: Intervals(ints([5]), ints([20]))}

    assert held_time(calls, np.array([False, True, True]), full).tolist() == [0, 10, 0]
