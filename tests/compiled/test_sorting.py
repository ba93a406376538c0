"""Integers sorted and merged by C code are those of numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview.base import groups, intervals
from traceview.base.compiled import library

FEW = st.lists(st.integers(0, 5) | st.integers(0, 2**61), max_size=40)


@pytest.fixture(autouse=True)
def few_are_sorted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_SHORT", 0)


def sort(numbers: np.ndarray) -> None:
    library.call("traceview_sort", numbers, np.empty_like(numbers), len(numbers), 0)


@given(numbers=FEW)
def test_numbers_in_order(numbers: list[int]) -> None:
    given_numbers = np.array(numbers, np.int64)
    sort(given_numbers)
    assert given_numbers.tolist() == sorted(numbers)


@pytest.mark.parametrize("most", [1, 2**10 - 1, 2**10, 2**31, 2**62])
def test_numbers_of_so_many_bits(most: int) -> None:
    numbers = np.random.default_rng(5).integers(0, most, 5_000, endpoint=True)
    expected = sorted(numbers.tolist())
    sort(numbers)
    assert numbers.tolist() == expected


@given(values=st.lists(st.integers(-3, 3) | st.integers(-(2**50), 2**50), max_size=60))
def test_rows_of_equal_values_keep_their_order(values: list[int]) -> None:
    order = groups.most_first(np.array(values, np.int64))
    assert order.tolist() == sorted(range(len(values)), key=lambda row: -values[row])


@settings(max_examples=200)
@given(begun=FEW, ended=FEW)
def test_what_runs_is_that_of_numpy(begun: list[int], ended: list[int]) -> None:
    columns = [np.array(sorted(times), np.int64) for times in (begun, ended)]
    found = intervals.running(*columns)
    expected = without_c(lambda: intervals.running(*columns))
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    times = sorted({*begun, *ended})
    counts = [sum(b <= t for b in begun) - sum(e <= t for e in ended) for t in times]
    assert [each.tolist() for each in found] == [times, counts]
