"""The innermost interval at a time, against a plain search."""

from contextlib import nullcontext

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import in_place_of_c
from traceview.base.intervals import Intervals
from traceview.traces.facts.ranges.nesting import Nesting, in_nesting_order, nest

Row = tuple[int, int, int]
TRACKS = 3
TIMES = np.arange(-3, 70)


def brute(rows: list[Row], track: int, time: int) -> int:
    """The open interval that started last; of equal starts the shorter, which stands later."""
    found = [i for i, (t, start, end) in enumerate(rows) if t == track and start <= time < end]
    return found[-1] if found else -1


def containing(rows: list[Row], row: Row) -> int:
    """The latest-started interval that contains one that stands after it."""
    track, start, end = row
    found = [i for i, (t, s, e) in enumerate(rows) if t == track and s <= start < end <= e]
    return found[-1] if found else -1


@st.composite
def nested(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []

    def fill(track: int, first: int, last: int, level: int) -> None:
        if level > 3 or last - first < 2:
            return
        cuts = sorted(draw(st.lists(st.integers(first, last), max_size=6, unique=True)))
        for start, end in zip(cuts[::2], cuts[1::2], strict=False):
            rows.append((track, start, end))
            fill(track, start, end, level + 1)

    for track in range(TRACKS):
        fill(track, 0, 60, 0)
    return rows


crossing = st.lists(
    st.tuples(st.integers(0, TRACKS - 1), st.integers(0, 50), st.integers(1, 20)), max_size=15
).map(lambda rows: [(track, start, start + length) for track, start, length in rows])


def check(rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: (row[0], row[1], -row[2]))
    track, start, end = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    for way in (nullcontext(), in_place_of_c()):
        with way:
            check_nesting(rows, nest(track, start, end))


def check_nesting(rows: list[Row], found: Nesting) -> None:
    asked = np.repeat(np.arange(TRACKS), len(TIMES))
    times = np.tile(TIMES, TRACKS)
    expected = [brute(rows, t, time) for t, time in zip(asked, times, strict=True)]
    assert found.innermost(asked, times).tolist() == expected

    window = Intervals(np.array([-2, 7, 20]), np.array([3, 11, 41]))
    inside = {t for s, e in zip(*map(np.ndarray.tolist, window), strict=True) for t in range(s, e)}
    for number in range(TRACKS):
        edges = [time for row in rows if row[0] == number for time in row[1:]]
        expected = sorted(time for time in edges if time in inside)
        assert sorted(found.edges(number, window).tolist()) == expected

    parents = [containing(rows[:i], row) for i, row in enumerate(rows)]
    assert found.parent.tolist() == parents

    lengths = [end - start for _, start, end in rows]
    inner = [
        sum(length for length, parent in zip(lengths, parents, strict=True) if parent == row)
        for row in range(len(rows))
    ]
    own = [max(length - other, 0) for length, other in zip(lengths, inner, strict=True)]
    assert found.own_ns.tolist() == own

    numbers = np.arange(len(rows)) % 3
    for found_ns, of_rows in zip(found.sums(numbers, 3), (lengths, own), strict=True):
        assert found_ns.tolist() == [sum(of_rows[number::3]) for number in range(3)]


@given(nested())
def test_ranges_that_nest(rows):
    check(rows)


@given(crossing)
def test_ranges_that_cross(rows):
    check(rows)


def test_only_the_tracks_with_crossing_ranges_are_walked():
    track, start, end = np.array([0, 0, 1, 1]), np.array([0, 2, 0, 5]), np.array([9, 4, 6, 8])

    assert nest(track, start, end).walked == {1}


def test_ranges_that_hand_over_in_a_chain_are_siblings():
    start = np.arange(0, 1000, 10)
    found = nest(np.zeros(100, np.int64), start, start + 15)

    assert found.parent.max() == -1


def test_no_ranges_at_all():
    none = np.zeros(0, np.int64)

    found = nest(none, none, none)
    assert found.innermost(np.array([0]), np.array([5])).tolist() == [-1]
    assert found.edges(0, Intervals(np.array([0]), np.array([9]))).tolist() == []


def test_times_too_far_apart_for_one_64_bit_key():
    track, start = np.array([0, 2**10, 2**10]), np.array([0, -(2**60), 2**60])
    found = nest(track, start, start + 5)

    assert found.innermost(track, start + 4).tolist() == [0, 1, 2]
    assert found.innermost(track, start + 5).tolist() == [-1, -1, -1]
    far = Intervals(np.array([-(2**61)]), np.array([2**60 + 1]))
    assert found.edges(2**10, far).tolist() == [-(2**60), 2**60, -(2**60) + 5]


SHORT = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(SHORT, max_size=5), st.booleans())
def test_whether_rows_are_in_nesting_order(rows, is_sorted):
    keys = [(track, start, -end) for track, start, end in rows]
    keys = sorted(keys) if is_sorted else keys
    track, start, end = (np.array([key[place] for key in keys], np.int64) for place in range(3))
    for way in (nullcontext(), in_place_of_c()):
        with way:
            assert in_nesting_order(track, start, -end) == (keys == sorted(keys))
