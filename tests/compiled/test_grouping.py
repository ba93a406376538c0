"""Groups, their statistics and different values from C code equal those of numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview.base import groups

VALUES = st.integers(-9, 9) | st.integers(-(2**60), 2**60)


def assert_equal(by: groups.Groups, values: np.ndarray) -> None:
    found, expected = groups.stats(by, values), without_c(lambda: groups.stats(by, values))
    for name, one, other in zip(found._fields, found, expected, strict=True):
        assert one.tolist() == other.tolist(), name


KEYS = st.integers(-2, 3) | st.integers(0, 2000) | st.integers(-(2**31), 2**31 - 1)


@given(rows=st.lists(st.tuples(KEYS, KEYS, st.integers(0, 2)), max_size=60))
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_groups_are_those_of_numpy(dtype: type, rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[place] for row in rows], dtype) for place in range(3)]
    for some in (keys[:1], keys[:2], keys, [keys[0] // 7, keys[0] // 7 * 3, keys[2]]):
        found, expected = groups.group(*some), without_c(lambda some=some: groups.group(*some))
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.first.tolist() == expected.first.tolist()
        assert found.ids.dtype == expected.ids.dtype == found.first.dtype == expected.first.dtype


@given(values=st.lists(st.integers(-128, 127), max_size=60))
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_different_values_of_a_column(dtype: type, values: list[int]) -> None:
    column = np.array(values, np.int64).astype(dtype)
    for given_column in (column, column[::2]):
        found = groups.different(given_column)
        assert found.tolist() == sorted(set(given_column.tolist()))
        assert found.dtype == dtype


@given(values=st.lists(st.integers(-3, 3) | st.integers(-128, 127), max_size=60))
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_rows_in_order_are_those_of_numpy(dtype: type, values: list[int]) -> None:
    column = np.array(values, dtype)
    for given_column in (column, column[::2], column // 99):
        expected = without_c(lambda given_column=given_column: groups.order_of(given_column))
        found = groups.order_of(given_column)
        assert found.tolist() == expected.tolist()
        assert found.tolist() == np.argsort(given_column, kind="stable").tolist()
        assert found.dtype == np.int64


@given(rows=st.lists(st.tuples(st.integers(0, 4), VALUES), max_size=60))
def test_statistics_are_those_of_numpy(rows: list[tuple[int, int]]) -> None:
    keys, values = (np.array([row[place] for row in rows], np.int64) for place in range(2))
    assert_equal(groups.group(keys), values)


@pytest.mark.parametrize(
    "kind", ["random", "ascending", "descending", "few", "equal", "organ pipe"]
)
def test_statistics_of_long_groups(kind: str) -> None:
    rng, rows = np.random.default_rng(3), 20_001
    ascending = np.arange(rows, dtype=np.int64)
    values = {
        "random": rng.integers(-(2**40), 2**40, rows),
        "ascending": ascending,
        "descending": ascending[::-1],
        "few": rng.integers(0, 3, rows),
        "equal": np.zeros(rows, np.int64),
        "organ pipe": np.minimum(ascending, ascending[::-1]),
    }[kind]
    for keys in (np.zeros(rows, np.int64), rng.integers(0, 50, rows), ascending // 2):
        assert_equal(groups.group(keys), values)


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 63)), min_size=1, max_size=80),
    more=st.sampled_from((0, 1, -64)),
)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_different_values_are_those_of_numpy(
    dtype: type, rows: list[tuple[int, int]], more: int
) -> None:
    keys, values = (np.array([row[place] for row in rows], dtype) for place in range(2))
    by = groups.group(keys)
    for given_values in (values, values + dtype(more)):
        expected = [len(set(given_values[by.ids == number])) for number in range(by.size)]
        assert groups.distinct(by, given_values).tolist() == expected


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 2)), max_size=60))
def test_groups_whose_rows_differ(rows: list[tuple[int, int]]) -> None:
    ids, values = (np.array([row[place] for row in rows], np.int32) for place in range(2))
    expected = [len(set(values[ids == number])) > 1 for number in range(5)]
    assert groups.varied(ids, 5, values).tolist() == expected
    assert without_c(lambda: groups.varied(ids, 5, values)).tolist() == expected
