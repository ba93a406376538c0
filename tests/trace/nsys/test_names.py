"""Numbers of distinct ids, and the texts behind them."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.tables import constant
from traceview.traces.trace.nsys.rows import Names, numbered, numbered_pairs
from traceview.traces.trace.sqlite.row_reader import Numbers

values = st.sampled_from([0, 1, 7, -3, 2**40, 2**62])


def names_of(stored):
    """The names of a database that holds these texts by id."""
    database = SimpleNamespace(tables={"StringIds": 2}, lookup=lambda *_: stored)
    return Names(database)


def test_ids_of_equal_texts_and_of_none():
    names = names_of({1: "a", 2: "a", 3: "b"})
    ids = np.array([3, 2, 1, 2, 4], np.int64)
    texts = names.texts(Numbers(ids))
    assert texts.decode().tolist() == ["b", "a", "a", "a", "(unknown name #4)"]
    assert sorted(texts.values) == ["(unknown name #4)", "a", "b"]
    some = names.texts(Numbers(ids, np.array([0, 0, 1, 0, 0], bool)))
    assert some.decode().tolist() == ["b", "a", None, "a", "(unknown name #4)"]
    none = names.texts(Numbers(constant(0, 3, np.int64), constant(True, 3, bool)))
    assert none.decode().tolist() == [None, None, None]


@given(st.lists(st.tuples(values, values), max_size=30))
def test_pairs_of_ids(rows):
    first, second = (np.array([row[at] for row in rows], np.int64) for at in range(2))
    distinct, codes = numbered(first)
    assert distinct.tolist() == sorted(set(first.tolist()))
    assert distinct[codes].tolist() == first.tolist()
    pairs, codes = numbered_pairs(first, second)
    assert len(set(pairs)) == len(pairs) == len(set(rows))
    assert [pairs[code] for code in codes.tolist()] == rows


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200), st.integers(1, 4))
def test_values_far_apart_are_numbered_in_order(some, times):
    values = np.array(some * times, np.int64)
    distinct, codes = numbered(values)
    assert distinct.tolist() == sorted(set(some))
    assert distinct[codes].tolist() == values.tolist()


def test_more_values_than_a_table_of_hashes_separates_are_sorted():
    values = np.arange(300_000, dtype=np.int64) * 2**40
    distinct, codes = numbered(values[::-1])
    assert (distinct == values).all()
    assert (codes == np.arange(len(values))[::-1]).all()
