"""Columns that grow piece by piece hold what the pieces held, in the smallest type."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.tables import constant
from traceview.base.tables.arrays import numbered
from traceview.base.tables.packed_texts import PackedTexts
from traceview.traces.trace.sqlite.row_reader import NumberColumn, Numbers, Piece, TextColumn

cells = st.one_of(
    st.none(),
    st.sampled_from([0, 7]),
    st.integers(-(2**7), 2**7 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
chunks = st.lists(st.lists(cells, max_size=8), max_size=6)


def number_piece(values: Sequence[int | None]) -> Piece:
    stored = np.array([value or 0 for value in values], np.int64)
    null = np.array([value is None for value in values], bool)
    least, greatest = (int(stored.min()), int(stored.max())) if values else (0, 0)
    return Piece(stored, null if null.any() else None, least, greatest)


def numbers(parts: Sequence[Sequence[int | None]], expected: int = 0) -> Numbers:
    column = NumberColumn()
    for part in parts:
        column.add(number_piece(part), expected)
    return column.collected()


@given(parts=chunks, expected=st.integers(0, 60))
def test_every_value_stays_what_it_was(parts: list[list[int | None]], expected: int) -> None:
    whole = [cell for part in parts for cell in part]
    found = numbers(parts, expected)
    assert found.values.tolist() == [cell or 0 for cell in whole]
    null = [False] * len(whole) if found.null is None else found.null.tolist()
    assert null == [cell is None for cell in whole]


@pytest.mark.parametrize(
    ("parts", "dtype"),
    [
        ([[1, 127], [-128]], "int8"),
        ([[1, 2], [128]], "int16"),
        ([[1, 2], [300], [-(2**15) - 1]], "int32"),
        ([[2**31], [5]], "int64"),
        ([[-(2**63), 2**63 - 1]], "int64"),
        ([[None, None], [2**15]], "int32"),
    ],
)
def test_takes_the_smallest_type(parts: list[list[int | None]], dtype: str) -> None:
    assert numbers(parts).values.dtype == dtype


def test_what_is_all_alike_takes_no_memory() -> None:
    found = numbers([[2**40] * 3, [2**40] * 4])
    assert found.null is None
    assert (found.values.strides, found.values.tolist()) == ((0,), [2**40] * 7)
    absent = numbers([[None] * 3, [None] * 4])
    assert absent.null is not None
    assert (absent.null.strides, absent.null.tolist()) == ((0,), [True] * 7)


def test_a_first_null_late_leaves_the_rows_before_it() -> None:
    found = numbers([[1, 2], [3], [None, 4]])
    assert found.null is not None
    assert found.null.tolist() == [False, False, False, True, False]


def text_piece(codes: Sequence[int], texts: Sequence[bytes]) -> Piece:
    stored = np.array(codes, np.int64)
    return Piece(stored, None, int(stored.min()), int(stored.max()), PackedTexts.of(texts))


def test_texts_of_all_pieces_are_stored_once() -> None:
    column = TextColumn()
    column.add(text_piece([0, 1, -1], [b"a", b"b"]), 3)
    column.add(text_piece([0, 1, 2], [b"b", b"c", b"a"]), 6)
    found = column.collected()
    assert list(found.values) == ["a", "b", "c"]
    assert list(found.decode()) == ["a", "b", None, "b", "c", "a"]
    assert found.codes.dtype == "int32"


def test_texts_that_are_damaged_differently_and_read_the_same_are_one() -> None:
    column = TextColumn()
    column.add(text_piece([0, 1], [b"\xff", b"\xfe"]), 2)
    assert list(column.collected().values) == ["\ufffd"]
    assert column.collected().codes.tolist() == [0, 0]


def test_a_column_without_a_text() -> None:
    column = TextColumn()
    column.add(text_piece([-1, -1], []), 2)
    assert list(column.collected().decode()) == [None, None]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_names_are_numbered_from_end_to_end_of_a_narrow_type(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = np.array([limits.max, limits.min, 0, limits.max], dtype)
    distinct, codes = numbered(values)
    assert distinct.tolist() == [limits.min, 0, limits.max]
    assert codes.tolist() == [2, 0, 1, 2]


def test_equal_names_are_numbered_without_a_copy() -> None:
    distinct, codes = numbered(constant(7, 5, np.int8))
    assert (distinct.tolist(), codes.tolist(), codes.strides) == ([7], [0] * 5, (0,))
