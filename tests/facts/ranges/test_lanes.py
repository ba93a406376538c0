"""Intervals of many lanes, asked at once, cover what each lane by itself covers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.base import intervals
from traceview.traces.facts.ranges.nesting import Lanes

TIME = st.integers(0, 30)
SPANS = st.lists(st.tuples(st.integers(0, 3), TIME, st.integers(0, 8)), max_size=20)


def columns(spans, scale):
    lane, start, length = np.array(spans or np.zeros((0, 3)), np.int64).T
    return lane, start * scale, (start + length) * scale


# Such times fit no key of lane and time, as those of damaged traces.
@pytest.mark.parametrize("scale", [1, 2**57])
@settings(max_examples=150)
@given(spans=SPANS, asked=SPANS)
def test_union_and_overlap_of_each_lane(scale, spans, asked):
    lane, start, end = columns(spans, scale)
    of, begin, until = columns(asked, scale)

    found = Lanes.union(lane, start, end)
    overlap = found.overlap(of, begin, until)

    for number in range(4):
        mine, here = lane == number, of == number
        alone = intervals.union(start[mine], end[mine])
        on = found.lane == number
        assert found.start[on].tolist() == alone.start.tolist()
        assert found.end[on].tolist() == alone.end.tolist()
        expected = intervals.overlap(alone, begin[here], until[here])
        assert overlap[here].tolist() == expected.tolist()


@settings(max_examples=150)
@given(st.lists(st.tuples(TIME, st.booleans()), max_size=12), TIME, TIME)
def test_only_what_is_counted_covers(found, one, other):
    first, last = sorted((one, other))
    start = np.cumsum([0] + [gap + 2 for gap, _ in found])[1:].astype(np.int64)
    counted = np.array([each for _, each in found], bool)
    lanes = Lanes.of(np.zeros(len(found), np.int64), start, start + 2)

    where = [lanes.locate(np.zeros(1, np.int64), np.array([at])) for at in (first, last)]
    covered = lanes.coverage(counted).between(*where)

    alone = intervals.Intervals(start[counted], start[counted] + 2)
    expected = intervals.overlap(alone, np.array([first]), np.array([last]))
    assert covered.tolist() == expected.tolist()
