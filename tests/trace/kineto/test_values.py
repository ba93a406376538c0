"""Columns gathered chunk by chunk."""

import numpy as np
import pytest

from traceview.trace.kineto.values import ColumnParts, narrow

EDGES = [0, 127, 128, -128, -129, 2**15 - 1, 2**15, -(2**15), 2**31 - 1, 2**31, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("value", EDGES)
def test_narrowing_keeps_every_value(value):
    found = narrow(np.array([0, value], np.int64))
    assert found.tolist() == [0, value]
    half = f"int{found.itemsize * 4}"
    assert found.itemsize == 1 or not np.iinfo(half).min <= value <= np.iinfo(half).max


def test_columns_widen_as_wider_values_come():
    parts, expected = ColumnParts(), []
    for value in EDGES:
        parts.add(value=np.full(1_000, value, np.int64), other=np.zeros((1_000, 3), np.int32))
        expected += [value] * 1_000
    column = parts.take("value")
    assert column.dtype == np.int64
    assert column.tolist() == expected
    assert parts.take("other", np.int32).shape == (12_000, 3)
    assert parts.take("value").tolist() == []


def test_a_column_of_small_values_takes_a_byte_per_row():
    parts = ColumnParts()
    parts.add(value=np.arange(100, dtype=np.int64))
    assert parts.narrowed("value").dtype == np.int8
