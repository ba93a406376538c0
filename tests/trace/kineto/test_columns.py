"""Columns gathered chunk by chunk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview.base.tables import NULL
from traceview.traces.trace.kineto.columns import BLOCK_ROWS, ColumnParts, PackedColumn

EDGES = [0, 127, 128, -128, -129, 2**15 - 1, 2**15, -(2**15), 2**31 - 1, 2**31, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("least", EDGES)
@pytest.mark.parametrize("span", [0, 1, 255, 256, 2**16, 2**32 - 1, 2**32, 2**64 - 1])
def test_packing_keeps_every_value_in_few_bytes(least, span):
    most = min(least + span, 2**63 - 1)
    values = np.array([least, most, least, least, most, most] * 100, np.int64)
    packed = PackedColumn.of(values)
    assert packed.values().tolist() == values.tolist()
    if least != NULL:
        widest = next(n for n in (1, 2, 4, 8) if most - least < 256**n)
        assert packed.nbytes <= widest * len(values)
    assert packed.is_constant == (most == least)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), min_size=1))
def test_packing_keeps_any_values(values):
    assert PackedColumn.of(np.array(values, np.int64)).values().tolist() == values


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), min_size=1))
def test_compiled_columns_are_packed_as_by_numpy(values):
    array = np.array(values, np.int64)
    packed = PackedColumn.of(array)
    expected = without_c(lambda: PackedColumn.of(array))
    assert (packed.least, packed.first) == (expected.least, expected.first)
    for name in ("above", "far_rows", "far"):
        one, other = getattr(packed, name), getattr(expected, name)
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())
    assert expected.values().tolist() == values


@pytest.mark.parametrize(
    ("values", "nbytes"),
    [
        ([7] * 1000, 0),
        (range(10**15, 10**15 + 1000), 0),
        ([*range(999), 10**15], 1000 + 12),
        ([NULL, *[7, 8] * 500], 1001 + 12),
        (np.cumsum([*[70_000] * 500, *[70_001] * 500]), 1000),
    ],
    ids=["equal", "ids", "one far away", "one absent", "times"],
)
def test_what_is_alike_takes_few_bytes(values, nbytes):
    packed = PackedColumn.of(np.array(values, np.int64))
    assert packed.nbytes == nbytes
    assert packed.values().tolist() == list(values)


def test_columns_come_back_as_they_were_added():
    parts, expected = ColumnParts(), []
    for number, value in enumerate(EDGES):
        count = (BLOCK_ROWS // 3) * (number % 4)
        wide = np.full((count, 3), value % 2**31, np.int32)
        parts.add(value=np.full(count, value, np.int64), other=wide, even=wide[:, 0] % 2 == 0)
        expected += [value] * count
    assert parts.rows == len(expected)
    assert parts.distinct("value").tolist() == sorted(set(expected))
    read = [values for (values,) in parts.blocks("value")]
    assert np.concatenate(read).tolist() == expected
    column, other = parts.take("value"), parts.take("other", np.int32)
    assert column.tolist() == expected
    assert other.dtype == np.int32
    assert other.tolist() == [[value % 2**31] * 3 for value in expected]
    assert parts.take("even", bool).tolist() == [value % 2**31 % 2 == 0 for value in expected]
    assert parts.take("value").tolist() == []


def test_equal_rows_are_stored_once():
    parts = ColumnParts()
    for _ in range(3):
        parts.add(value=np.full(BLOCK_ROWS, 7, np.int64))
    column = parts.take("value", np.int32)
    assert (len(column), column.strides, column.dtype) == (3 * BLOCK_ROWS, (0,), np.int32)
    assert (column == 7).all()


def test_blocks_that_were_read_can_be_forgotten():
    parts = ColumnParts()
    for first in (0, BLOCK_ROWS):
        parts.add(value=np.arange(first, first + BLOCK_ROWS))
    assert sum(len(values) for (values,) in parts.blocks("value", forget=True)) == 2 * BLOCK_ROWS
    assert parts.take("value").tolist() == []
