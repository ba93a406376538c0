"""Unions and searches in C equal those of numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview.base import intervals
from traceview.traces.facts.ranges.nesting import Lanes

TIMES = st.integers(0, 30) | st.integers(-(2**62), 2**62)
INTERVALS = st.lists(st.tuples(st.integers(0, 2), TIMES, TIMES), max_size=14)


def columns(given: list[tuple[int, int, int]]) -> list[np.ndarray]:
    return [np.array([row[place] for row in given], np.int64) for place in range(3)]


@given(given=INTERVALS)
def test_unions_are_those_of_numpy(given: list[tuple[int, int, int]]) -> None:
    _, start, end = columns(given)
    for union in (intervals.union, intervals.covered_twice):
        expected = without_c(lambda union=union: union(start, end))
        for one, other in zip(union(start, end), expected, strict=True):
            assert one.tolist() == other.tolist()


@given(given=st.lists(st.tuples(*[st.integers(0, 30)] * 3), max_size=14))
def test_unions_on_lanes_are_those_of_numpy(given: list[tuple[int, int, int]]) -> None:
    lane, start, end = columns(given)
    lane -= 3  # on a lane below 0 is on none
    found, expected = (
        Lanes.union(lane, start, end),
        without_c(lambda: Lanes.union(lane, start, end)),
    )
    for name in ("lane", "start", "end"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@given(ordered=st.lists(TIMES, max_size=40), values=st.lists(TIMES, max_size=40))
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_are_those_of_numpy(side: str, ordered: list[int], values: list[int]) -> None:
    numbers, asked = np.sort(np.array(ordered, np.int64)), np.array(values, np.int64)
    expected = np.searchsorted(numbers, asked, side=side)
    assert intervals.places(numbers, asked, side).tolist() == expected.tolist()


@given(given=INTERVALS, times=st.lists(TIMES, max_size=40))
def test_rows_inside_a_union_are_those_of_numpy(
    given: list[tuple[int, int, int]], times: list[int]
) -> None:
    union = intervals.union(*columns(given)[1:])
    asked = np.sort(np.array(times, np.int64))
    expected = without_c(lambda: intervals.rows_inside(union, asked))
    assert intervals.rows_inside(union, asked).tolist() == expected.tolist()


@given(one=INTERVALS, other=INTERVALS)
def test_intersections_are_those_of_numpy(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    unions = [intervals.union(*columns(given)[1:]) for given in (one, other)]
    expected = without_c(lambda: intervals.intersection(*unions))
    for found, wanted in zip(intervals.intersection(*unions), expected, strict=True):
        assert found.tolist() == wanted.tolist()


def test_places_far_apart_and_near() -> None:
    numbers = np.arange(0, 300_000, 3)
    for asked in (np.arange(-5, 300_010), np.arange(300_010, -5, -1), np.tile([0, 299_999], 50)):
        for side in ("left", "right"):
            expected = np.searchsorted(numbers, asked, side=side)
            assert (intervals.places(numbers, asked, side) == expected).all()


@given(given=st.lists(st.tuples(*[st.integers(0, 60)] * 3), max_size=14))
def test_time_covered_before_is_that_of_numpy(given: list[tuple[int, int, int]]) -> None:
    time, start, end = columns(given)
    covered = intervals.union(start, end)
    expected = without_c(lambda: intervals.covered_before(covered, time))
    assert intervals.covered_before(covered, time).tolist() == expected.tolist()


@given(given=st.lists(st.tuples(st.integers(0, 2), *[st.integers(0, 30)] * 2), max_size=14))
def test_depth_is_that_of_numpy(given: list[tuple[int, int, int]]) -> None:
    kind, start, end = columns(given)
    for counted in (kind >= 0, kind > 0):
        expected = without_c(lambda counted=counted: intervals.depth(start, end, counted))
        assert intervals.depth(start, end, counted) == expected


def test_intervals_out_of_order_are_refused() -> None:
    start = np.array([5, 3])
    with pytest.raises(AssertionError, match="not in order"):
        intervals._covered(intervals.Intervals(start, start + 1), least=1)
    with pytest.raises(AssertionError, match="not in order"):
        intervals.union_on_lanes(np.zeros(2), start, start + 1, 1)


NEAR = st.lists(st.tuples(st.just(0), st.integers(0, 30), st.integers(0, 30)), max_size=14)


@pytest.mark.parametrize("in_order", [False, True])
@given(given=NEAR | INTERVALS)
def test_what_overlaps_is_that_of_numpy(in_order: bool, given: list[tuple[int, int, int]]) -> None:
    if in_order:
        given.sort(key=lambda row: (row[1], -row[2]))
    _, start, end = columns(given)
    ordered, rows = intervals.overlapping(start, end)
    expected, expected_rows = without_c(lambda: intervals.overlapping(start, end))
    assert ordered == expected
    if ordered:
        assert rows.tolist() == expected_rows.tolist()


@pytest.mark.parametrize("in_order", [False, True])
@given(given=NEAR | INTERVALS)
def test_outermost_intervals_are_those_of_numpy(
    in_order: bool, given: list[tuple[int, int, int]]
) -> None:
    _, start, end = columns(given)
    rows = np.arange(len(given), dtype=np.int32)
    if in_order:
        rows = rows[np.lexsort((-end, start))]
    found = intervals.outermost(start, end, rows)
    expected = without_c(lambda: intervals.outermost(start, end, rows))
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0].tolist() == expected[0].tolist()
        assert [side.tolist() for side in found[1]] == [side.tolist() for side in expected[1]]
