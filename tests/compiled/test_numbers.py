"""Integers numbered by C code equal those that numpy numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.tables.arrays import few_values

TYPES = ("int8", "int16", "int32", "int64")


@given(data=st.data(), dtype=st.sampled_from(TYPES))
def test_numbers_are_in_order_of_appearance(data: st.DataObject, dtype: str) -> None:
    limits = np.iinfo(dtype)
    near = st.integers(int(limits.min), int(limits.max)) | st.integers(-3, 3)
    values = np.array(data.draw(st.lists(near, max_size=60)), dtype)
    found = few_values(values)
    assert found is not None
    distinct, numbers = found
    assert distinct.tolist() == list(dict.fromkeys(values.tolist()))
    assert distinct[numbers].tolist() == values.tolist()


def test_every_second_row_of_a_column() -> None:
    found = few_values(np.array([5, 1, 7, 1, 5, 1])[::2])
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([5, 7], [0, 1, 0])


@pytest.mark.parametrize(("different", "few"), [(1 << 15, True), ((1 << 15) + 1, False)])
def test_many_different_values_are_left_to_numpy(different: int, few: bool) -> None:
    values = np.arange(different, dtype=np.int64) * 48271
    assert (few_values(values) is not None) is few


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 63, 64, 32_767])
def test_a_value_per_row_has_room(rows: int) -> None:
    values = np.arange(rows, dtype=np.int64) * 48271
    found = few_values(values)
    assert found is not None
    assert found[0].tolist() == values.tolist()


def test_values_that_are_made_to_collide_are_left_to_numpy() -> None:
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    product = np.arange(600, dtype=np.uint64) | np.uint64(1 << 63)
    values = (product * np.uint64(inverse)).view(np.int64)
    assert few_values(values) is None
