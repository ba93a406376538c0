"""What the launching thread did during idle gaps."""

import numpy as np

from tests.facts.arrays import api_calls, ints
from traceview.base.intervals import EMPTY, Intervals
from traceview.traces.facts.idle.cpu_activity import (
    IN_FLIGHT,
    OFF_CPU,
    OUTSIDE_CUDA,
    QUEUE_FULL,
    ThreadTime,
    cut,
    outermost_calls,
)


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
    parts = cut(spans((100, 200)), ints([180]), thread, ints([50, 140]))

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
    parts = cut(spans((0, 10), (20, 50)), ints([10, 60]), thread, ints([]))

    assert np.bincount(parts.row, parts.end - parts.start).tolist() == [10, 30]
    assert parts.activity.tolist() == [OUTSIDE_CUDA, 0, 0, OUTSIDE_CUDA]


def test_no_gaps_have_no_parts():
    thread = ThreadTime(spans((5, 25)), np.array([0], np.int32), EMPTY, EMPTY)
    parts = cut(EMPTY, ints([]), thread, ints([7]))
    assert [len(column) for column in parts] == [0, 0, 0, 0]


def test_inner_calls_are_left_out_and_overlapping_ones_cut():
    calls = api_calls([(0, 10), (2, 8), (9, 20), (30, 40), (31, 32)], thread=[0, 0, 0, 1, 0])
    row, time = outermost_calls(calls, np.array([0, 1, 2, 4], np.int32))

    assert row.tolist() == [0, 2, 4]
    assert list(zip(*(side.tolist() for side in time), strict=True)) == [(0, 9), (9, 20), (31, 32)]
