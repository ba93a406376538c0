"""Columns as they are sent between processes: equal afterwards, in few bytes."""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ranks.hand_made import MS, Call, Made, job
from traceview.traces.ranks.sent import SentColumn, SentTable, SentTexts

LIMITS = np.iinfo(np.int64)
INTEGERS = st.integers(int(LIMITS.min), int(LIMITS.max))
COLUMNS = st.one_of(
    st.lists(INTEGERS, max_size=60),
    st.lists(st.integers(-1, 1), max_size=200),
    st.lists(st.tuples(INTEGERS, st.integers(1, 40)), max_size=9).map(
        lambda runs: [value for value, length in runs for _ in range(length)]
    ),
)


def sent(value: object) -> object:
    """A value after its way to another process."""
    return pickle.loads(pickle.dumps(value))


@given(COLUMNS)
def test_a_column_is_equal_afterwards(values: list[int]):
    column = np.array(values, np.int64)
    np.testing.assert_array_equal(sent(SentColumn.of(column)).unpacked(), column)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "bool"])
def test_a_column_keeps_its_type(dtype: str):
    column = np.array([0, 1, 1, 0, 1], dtype)
    back = SentColumn.of(column).unpacked()
    assert back.dtype == column.dtype
    assert back.tolist() == column.tolist()


@given(st.lists(st.text(st.characters()), max_size=9))
def test_texts_are_equal_afterwards(texts: list[str]):
    assert SentTexts.of(texts).unpacked() == tuple(texts)


def test_lone_surrogates_and_zeros_stay():
    texts = ("\ud800", "a\0b", "", "é")
    assert SentTexts.of(texts).unpacked() == texts


def test_a_table_is_equal_afterwards_without_its_columns_of_zeros():
    table = np.zeros((1000, 9), np.int64)
    table[:, 4] = np.arange(1000) ** 2
    packed = SentTable.of(table)
    assert [place for place, _ in packed.columns] == [4]
    np.testing.assert_array_equal(packed.unpacked(), table)


def size(column: np.ndarray) -> int:
    return len(pickle.dumps(SentColumn.of(column)))


def test_the_bytes_of_columns():
    draw = np.random.default_rng(3)
    constant = size(np.full(10_000, LIMITS.min))
    assert constant < 500
    # One byte each, though the times themselves have seven.
    assert size(10**17 + np.cumsum(draw.integers(0, 256, 10_000))) < 10_000 + 800
    # A few large ones take bytes of their own, and no others do.
    some = draw.integers(0, 256, 10_000)
    some[::1000] += 1 << 40
    assert size(some) < 10_000 + 2_000
    # Twelve collectives per step, the last one outside of it.
    step = np.where(np.arange(12_000) % 12 < 11, np.arange(12_000) // 12, -1)
    assert size(step) < 8_000


def test_the_figures_of_a_rank_are_equal_afterwards():
    steps = [[Call(5 * MS + step, idle_ns=step % 3 * MS)] * 2 for step in range(40)]
    (rank,) = job([Made(steps, cpu_ns=range(40))])
    back = sent(rank)
    for part in ("collectives", "steps"):
        own, other = getattr(rank, part), getattr(back, part)
        for column in fields(own):
            np.testing.assert_array_equal(
                getattr(other, column.name), getattr(own, column.name), column.name
            )
    assert back.steps.names == rank.steps.names
    assert (back.name, back.work, back.communicators) == (rank.name, rank.work, rank.communicators)
