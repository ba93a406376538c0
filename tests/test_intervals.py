"""Interval arithmetic against sets of instants."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.base import intervals

pairs = st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 12)), max_size=25)


def arrays(drawn):
    start = np.array([start for start, _ in drawn], np.int64)
    return start, start + np.array([length for _, length in drawn], np.int64)


def instants(start, end):
    """Every instant [t, t+1) that is covered."""
    return {t for s, e in zip(start.tolist(), end.tolist(), strict=True) for t in range(s, e)}


@given(pairs)
def test_union_covers_the_same_instants_with_the_fewest_intervals(drawn):
    start, end = arrays(drawn)
    covered = intervals.union(start, end)

    assert instants(*covered) == instants(start, end)
    assert covered.total() == len(instants(start, end))
    assert (covered.start[1:] > covered.end[:-1]).all()


@given(pairs)
def test_gaps_are_what_lies_between(drawn):
    covered = intervals.union(*arrays(drawn))
    free = intervals.gaps(covered)
    inside = instants(*covered)

    if inside:
        assert instants(*free) == set(range(min(inside), max(inside) + 1)) - inside
    else:
        assert not len(free.start)


@given(pairs, pairs)
def test_overlap_and_intersection(drawn, asked):
    covered = intervals.union(*arrays(drawn))
    start, end = arrays(asked)
    inside = instants(*covered)

    expected = [len(inside & set(range(s, e))) for s, e in zip(start, end, strict=True)]
    assert intervals.overlap(covered, start, end).tolist() == expected

    both = intervals.intersection(covered, intervals.union(start, end))
    assert instants(*both) == inside & instants(start, end)
    assert intervals.inside(covered, start).tolist() == [int(s) in inside for s in start]


@given(pairs, st.integers(-25, 10), st.integers(0, 40))
def test_complement(drawn, first, length):
    covered = intervals.union(*arrays(drawn))
    free = intervals.complement(covered, first, first + length)

    assert instants(*free) == set(range(first, first + length)) - instants(*covered)


@given(pairs.filter(bool))
def test_depth(drawn):
    start, end = arrays([(s, length + 1) for s, length in drawn])
    span = range(int(start.min()), int(end.max()))
    open_at = [int(((start <= t) & (t < end)).sum()) for t in span]

    assert intervals.depth(start, end).most == max(open_at)
    assert intervals.depth(start, end).mean == sum(open_at) / len(span)


@given(pairs.filter(bool), st.integers(1, 2**12 - 1))
def test_the_depth_that_some_saw(drawn, bits):
    start, end = arrays([(s, length + 1) for s, length in drawn])
    counted = np.array([bool(bits >> (place % 12) & 1) for place in range(len(start))])
    if not counted.any():
        counted[0] = True
    there = start <= start[counted].max()
    span = range(int(start[counted].min()), int(end[counted].max()))
    open_at = [int((there & (start <= t) & (t < end)).sum()) for t in span]

    found = intervals.depth(start, end, counted)
    # No more can be open later than where the last one starts.
    assert found.most == max(open_at)
    assert found.mean == sum(open_at) / len(span) <= found.most


def test_nothing_is_open_in_no_intervals():
    none = np.zeros(0, np.int64)

    assert intervals.depth(none, none) == (0, 0.0)
    assert intervals.union(none, none).total() == 0
    assert intervals.overlap(intervals.EMPTY, np.array([1]), np.array([5])).tolist() == [0]


@given(pairs, st.lists(st.integers(-25, 60), max_size=30))
def test_rows_of_ascending_times_inside(drawn, times):
    covered = intervals.union(*arrays(drawn))
    time = np.sort(np.array(times, np.int64))

    there = instants(*covered)
    expected = [row for row, t in enumerate(time.tolist()) if t in there]
    assert intervals.rows_inside(covered, time).tolist() == expected
