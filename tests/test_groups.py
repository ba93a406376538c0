"""Grouping and joining against dictionaries."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import in_place_of_c
from traceview.base import groups
from traceview.base.tables import arrays

small = st.integers(-3, 5)
wide = st.sampled_from([-(2**62), -5, 0, 7, 2**40, 2**62])


@given(st.lists(st.tuples(small | wide, small | wide, small), max_size=40))
def test_rows_with_equal_keys_share_an_id(keys):
    columns = [np.array([key[i] for key in keys], np.int64) for i in range(3)]
    found = groups.group(*columns)

    first = [keys[row] for row in found.first]
    assert first == sorted(set(keys))
    assert [first[i] for i in found.ids] == keys
    assert [keys.index(key) for key in first] == found.first.tolist()


@given(st.lists(st.integers(-3, 5) | wide, max_size=40))
def test_the_rows_of_each_value_ascend(values):
    found = groups.rows_of(np.array(values, np.int64))

    assert list(found) == sorted(set(values))
    for value, rows in found.items():
        assert rows.tolist() == [row for row, other in enumerate(values) if other == value]


@given(st.lists(st.tuples(small, st.integers(-100, 100)), min_size=1, max_size=40))
def test_figures_of_each_group(rows):
    found = groups.group(np.array([key for key, _ in rows], np.int64))
    figures = groups.stats(found, np.array([value for _, value in rows], np.int64))

    for number, key in enumerate(sorted({key for key, _ in rows})):
        mine = sorted(value for other, value in rows if other == key)
        assert figures.calls[number] == len(mine)
        assert figures.total[number] == sum(mine)
        assert (figures.least[number], figures.most[number]) == (mine[0], mine[-1])
        middle = (mine[(len(mine) - 1) // 2], mine[len(mine) // 2])
        assert figures.median[number] == (middle[0] + middle[1]) // 2


@given(st.lists(st.tuples(small, small | wide), max_size=40))
def test_distinct_counts_the_values_of_each_group(pairs):
    keys, values = (np.array([pair[i] for pair in pairs], np.int64) for i in range(2))
    found = groups.group(keys)

    expected = [len({v for k, v in pairs if k == key}) for key in sorted({k for k, _ in pairs})]
    assert groups.distinct(found, values).tolist() == expected


@given(st.lists(small | wide, max_size=40), st.sampled_from([np.int64, np.int16]))
def test_different_values(values, dtype):
    given_ = np.array(values, np.int64).astype(dtype)
    found = groups.different(given_)
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(given_.tolist()))


@given(st.lists(small | wide, max_size=40), st.lists(small | wide, max_size=9))
def test_values_that_are_wanted(values, wanted):
    found = groups.isin(np.array(values, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [value in wanted for value in values]


@given(st.lists(st.tuples(small, small, small), max_size=8))
def test_rows_in_order(rows):
    columns = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    assert groups.in_order(*columns) == (rows == sorted(rows))


@given(st.lists(st.tuples(small, wide), min_size=1, max_size=40))
def test_figures_of_values_far_apart(rows):
    """Beyond what a key of group and value holds."""
    found = groups.group(np.array([key for key, _ in rows]))
    figures = groups.stats(found, np.array([value for _, value in rows], np.int64))
    for at, row in enumerate(found.first.tolist()):
        values = sorted(value for key, value in rows if key == rows[row][0])
        assert (figures.least[at], figures.most[at]) == (values[0], values[-1])
        assert figures.calls[at] == len(values)


@given(st.lists(st.integers(-2000, 2000), min_size=1, max_size=60))
def test_a_key_that_follows_from_the_one_before(keys):
    values = np.array(keys, np.int64)
    found = groups.group(values, values % 7 * 3000, values)
    assert found.ids.tolist() == groups.group(values).ids.tolist()
    assert found.first.tolist() == groups.group(values).first.tolist()


@given(st.lists(small | wide, max_size=40))
def test_rows_in_descending_order(values):
    order = groups.most_first(np.array(values, np.int64)).tolist()
    assert order == sorted(range(len(values)), key=lambda row: -values[row])


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**20), 2**20), max_size=40))
def test_rows_in_the_order_of_small_numbers(values):
    order = groups.order_of(np.array(values, np.int32)).tolist()
    assert order == sorted(range(len(values)), key=lambda row: values[row])


@given(st.lists(st.tuples(small, small), max_size=40), st.integers(1, 5))
def test_the_order_of_rows_is_seen_across_parts(pairs, rows_each):
    keys = [np.array([pair[i] for pair in pairs], np.int64) for i in range(2)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arrays, "_PART", rows_each)
        assert groups.in_order(*keys) == (pairs == sorted(pairs))
        counted = groups.frequencies(keys[0] + 3, 9)
    assert counted.tolist() == [sum(each == n - 3 for each, _ in pairs) for n in range(9)]


@pytest.mark.parametrize("way", [nullcontext, in_place_of_c])
@given(st.lists(st.integers(-3, 5) | wide, max_size=60), st.data())
def test_rows_of_most_first(way, values, data):
    column = np.array(values, np.int64)
    count = data.draw(st.integers(0, len(values)))
    with pytest.MonkeyPatch.context() as patch, way():
        patch.setattr(groups, "_SHORT", 0)
        order = groups.MostFirst(column)
        expected = sorted(range(len(values)), key=lambda row: -values[row])
        assert order.first(count).tolist() == expected[:count]
        assert order.every.tolist() == expected
        assert len(order) == len(values)


@pytest.mark.parametrize("way", [nullcontext, in_place_of_c])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(-(2**50), 2**50)), max_size=40))
def test_values_are_added_by_number(way, dtype, rows):
    numbers, values = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    with way():
        found = groups.added(numbers.astype(dtype), values, 6)
    assert found.tolist() == [sum(v for n, v in rows if n == number) for number in range(6)]
