"""Columns gathered chunk by chunk."""

import numpy as np
import pytest

from traceview.trace.kineto.columns import BLOCK_ROWS, ColumnParts, PackedColumn

EDGES = [0, 127, 128, -128, -129, 2**15 - 1, 2**15, -(2**15), 2**31 - 1, 2**31, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("least", EDGES)
@pytest.mark.parametrize("span", [0, 1, 255, 256, 2**16, 2**32 - 1, 2**32, 2**64 - 1])
def test_packing_keeps_every_value_in_the_fewest_bytes(least, span):
    values = np.array([least, min(least + span, 2**63 - 1), least], np.int64)
    packed = PackedColumn.of(values)
    assert packed.values().tolist() == values.tolist()
    spanned = int(values[1]) - least
    assert packed.above.itemsize == next(n for n in (1, 2, 4, 8) if spanned < 256**n)
    assert packed.is_constant == (not spanned)


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
