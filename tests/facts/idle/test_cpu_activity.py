"""What the launching thread did during idle gaps."""

import numpy as np
import pytest

from tests.facts.arrays import api_calls, ints
from tests.oracles.plain_library import without_c
from traceview.facts.idle.cpu_activity import outermost_calls
from traceview.facts.idle.gap_parts import (
    IN_FLIGHT,
    OFF_CPU,
    OUTSIDE_CUDA,
    QUEUE_FULL,
    GapParts,
    ThreadTime,
    split_gaps,
)
from traceview.intervals import EMPTY, Intervals


def spans(*pairs):
    return Intervals(ints([a for a, _ in pairs]), ints([b for _, b in pairs]))


def test_a_gap_is_cut_wherever_the_thread_went_on():
    #  gap 100–200; calls 90–120 (code 3) and 150–170 (code 4), the queue full at 160–165, off the
    #  CPU at 125–130, a range edge at 140, queued at 180
    thread = ThreadTime(
        call=spans((90, 120), (150, 170)),
        name=np.array([3, 4], np.int32),
        queue_full=spans((160, 165)),
        off_cpu=spans((125, 130)),
    )
    parts = split_gaps(spans((100, 200)), ints([180]), thread, ints([50, 140]))

    rows = zip(parts.start.tolist(), parts.end.tolist(), parts.activity.tolist(), strict=True)
    assert list(rows) == [
        (100, 120, 3),
        (120, 125, OUTSIDE_CUDA),
        (125, 130, OFF_CPU),
        (130, 140, OUTSIDE_CUDA),
        (140, 150, OUTSIDE_CUDA),
        (150, 160, 4),
        (160, 165, QUEUE_FULL),
        (165, 170, 4),
        (170, 180, OUTSIDE_CUDA),
        (180, 200, IN_FLIGHT),
    ]


def test_the_parts_of_each_gap_add_up_to_it():
    thread = ThreadTime(spans((5, 25)), np.array([0], np.int32), EMPTY, EMPTY)
    parts = split_gaps(spans((0, 10), (20, 50)), ints([10, 60]), thread, ints([]))

    assert np.bincount(parts.gap, parts.end - parts.start).tolist() == [10, 30]
    assert parts.activity.tolist() == [OUTSIDE_CUDA, 0, 0, OUTSIDE_CUDA]


@pytest.mark.parametrize("seed", range(20))
def test_gaps_are_cut_alike_at_once_a_few_at_a_time_and_without_c(seed: int):
    random = np.random.default_rng(seed)

    def some(count: int) -> Intervals:
        times = np.sort(random.choice(400, 2 * count, replace=False))
        return Intervals(times[::2], times[1::2])

    def part_of_all(first: int, last: int) -> GapParts:
        near = Intervals(idle.start[first:last], idle.end[first:last])
        part = split_gaps(near, queued[first:last], thread, edges)
        return part._replace(gap=part.gap + np.int32(first))

    idle, calls = some(20), some(25)
    thread = ThreadTime(calls, random.integers(0, 5, 25).astype(np.int32), some(8), some(6))
    queued, edges = random.integers(0, 400, 20), np.sort(random.integers(0, 400, 50))
    compiled = part_of_all(0, 20)
    in_turn = [part_of_all(first, first + 3) for first in range(0, 20, 3)]
    plain = without_c(lambda: part_of_all(0, 20))
    for kind in (compiled, map(np.concatenate, zip(*in_turn, strict=True))):
        for column, expected in zip(kind, plain, strict=True):
            assert column.tolist() == expected.tolist()
            assert column.dtype == expected.dtype


def test_no_gaps_have_no_parts():
    thread = ThreadTime(spans((5, 25)), np.array([0], np.int32), EMPTY, EMPTY)
    parts = split_gaps(EMPTY, ints([]), thread, ints([7]))
    assert [len(column) for column in parts] == [0, 0, 0, 0]


def test_inner_calls_are_left_out_and_overlapping_ones_cut():
    calls = api_calls([(0, 10), (2, 8), (9, 20), (30, 40), (31, 32)], thread=[0, 0, 0, 1, 0])
    row, time = outermost_calls(calls, np.array([0, 1, 2, 4], np.int32))

    assert row.tolist() == [0, 2, 4]
    assert list(zip(*(side.tolist() for side in time), strict=True)) == [(0, 9), (9, 20), (31, 32)]
