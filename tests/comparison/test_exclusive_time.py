"""Exclusive time, against a count of every nanosecond."""

import numpy as np
import pytest

from traceview.base import intervals
from traceview.base.intervals import Intervals, exclusive_ns


def counted(start, end, precedence, window) -> list[int]:
    """The same by asking each nanosecond whose it is."""
    own = [0] * len(start)
    for first, last in zip(*window, strict=True):
        for now in range(first, last):
            open_rows = [row for row in range(len(start)) if start[row] <= now < end[row]]
            if open_rows:
                own[min(open_rows, key=lambda row: (precedence[row], start[row], row))] += 1
    return own


@pytest.mark.parametrize("seed", range(60))
def test_each_nanosecond_belongs_to_one(seed):
    random = np.random.default_rng(seed)
    rows = int(random.integers(0, 25))
    start = np.sort(random.integers(0, 60, rows))
    end = start + random.integers(-1, 25, rows)
    precedence = random.integers(0, 4, rows)
    edges = np.sort(random.integers(0, 90, 2 * int(random.integers(1, 4))))
    window = intervals.union(edges[::2], edges[1::2])
    own = exclusive_ns(start, end, precedence, window)
    assert own.tolist() == counted(start, end, precedence, window)


def test_no_window_no_time():
    time = np.array([1, 2])
    none = np.zeros(0, np.int64)
    assert exclusive_ns(time, time + 1, np.zeros(2, int), Intervals(none, none)).tolist() == [0, 0]
