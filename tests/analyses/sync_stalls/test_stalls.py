"""Benign and harmful parts of waits, on arrays."""

import numpy as np

from tests.facts.arrays import ints, operations, waits
from traceview.base.intervals import Intervals
from traceview.traces.facts.operations import CallKind
from traceview.traces.facts.waits import Stalls, benign_time, outermost_waits


def test_the_benign_part_of_a_wait_is_gpu_work():
    busy = {0: Intervals(ints([10, 60]), ints([50, 80])), 1: Intervals(ints([0]), ints([100]))}
    ops = operations([(10, 50), (60, 80)])
    each = waits([(5, 55), (55, 90), (0, 100), (5, 55)], device=[0, 0, 1, -1])

    # Without a known device, what its process has run on any counts.
    assert benign_time(each, busy, ops).tolist() == [40, 20, 100, 40]


def test_calls_inside_a_blocking_call_are_no_second_wait():
    each = waits([(0, 50), (5, 45), (10, 20), (60, 70), (6, 7)], thread=[0, 0, 0, 0, 1])

    assert outermost_waits(each).tolist() == [0, 0, 0, 3, 4]


def test_what_a_look_up_contains_waits_by_itself():
    each = waits([(0, 50), (5, 45)], does=[CallKind.LOOK_UP, CallKind.SYNCHRONIZE])

    assert outermost_waits(each).tolist() == [0, 1]


def test_idle_time_belongs_to_the_wait_of_each_chosen_gap():
    cost = Stalls(
        ints([0, 1]), ints([0, 0]), wait=ints([0, -1, 1, 1]), gap_idle_ns=ints([1, 2, 4, 8])
    )

    assert cost.idle_ns(np.array([True, True, True, False])).tolist() == [1, 4]
