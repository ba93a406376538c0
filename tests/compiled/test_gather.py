"""Values picked by C code are those that numpy picks."""

import numpy as np
import pytest

from traceview.base.compiled import library
from traceview.base.tables import arrays
from traceview.base.tables.arrays import _gathered as gather

VALUES = np.arange(9)


@pytest.fixture(autouse=True)
def few_are_picked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_LEAST_GATHERED", 0)


@pytest.mark.parametrize("rows", ["i4", "i8", "i2", "u4"])
@pytest.mark.parametrize("values", ["?", "i1", "u2", "i4", "i8", "f8", "f2", "O", "M8[ns]", ">i4"])
def test_values_of_every_type(values: str, rows: str) -> None:
    column, picks = VALUES.astype(values), np.array([3, 0, 8, 3]).astype(rows)
    picked = gather(column, picks)
    assert (picked.tolist(), picked.dtype) == (column[picks].tolist(), column.dtype)


def test_rows_below_zero_count_from_the_end() -> None:
    assert gather(VALUES, np.array([-1, -9, 0], np.int32)).tolist() == [8, 0, 0]


@pytest.mark.parametrize("row", [9, -10, 2**31 - 1, -(2**31)])
def test_a_row_that_is_not_there_is_an_error(row: int) -> None:
    with pytest.raises(IndexError):
        gather(VALUES, np.array([0, row], np.int32))


def test_columns_with_gaps_and_masks() -> None:
    assert gather(VALUES[::2], np.array([1, 2])).tolist() == [2, 4]
    assert gather(VALUES, np.array([0, 1, 2, 3])[::2]).tolist() == [0, 2]
    assert gather(VALUES, VALUES > 6).tolist() == [7, 8]


def test_long_columns_are_picked_by_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(library, "call", lambda name, *_: called.append(name))
    gather(VALUES, np.array([1], np.int32))
    assert called == ["traceview_gather"]
