"""Values of the nearest ancestor, and marks up to the root: in C, by numpy, and by hand."""

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import in_place_of_c
from traceview.traces.facts.ranges.nesting import depths, inherited, nearest, with_ancestors


@pytest.fixture(autouse=True, params=[nullcontext, in_place_of_c], scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test with the C library and without it."""
    with request.param():
        yield


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """The parent of each row; a range lent to another thread may lie before its parent."""
    rows = draw(st.integers(0, 12))
    order = draw(st.permutations(range(rows)))
    parent = [-1] * rows
    for place, row in enumerate(order[1:], 1):
        above = draw(st.integers(-1, place - 1))
        parent[row] = order[above] if above >= 0 else -1
    return parent


def chain(parent: list[int], row: int) -> list[int]:
    found = []
    while row >= 0:
        found.append(row)
        row = parent[row]
    return found


@given(parent=trees(), data=st.data())
def test_a_row_without_a_value_has_that_of_its_nearest_ancestor(
    parent: list[int], data: st.DataObject
) -> None:
    rows = st.integers(-1, len(parent) - 1)
    value = data.draw(st.lists(st.integers(-2, 5), min_size=len(parent), max_size=len(parent)))
    asked = data.draw(st.lists(rows, max_size=8))
    every = [
        next((value[r] for r in chain(parent, row) if value[r] >= 0), -1)
        for row in range(len(parent))
    ]
    values, parents = np.array(value, np.int32), np.array(parent, np.int32)
    expected = [every[row] if row >= 0 else -1 for row in asked]
    assert nearest(values, parents, np.array(asked, np.int32)).tolist() == expected
    assert inherited(values, parents).tolist() == every


@given(parent=trees())
def test_the_depth_of_a_row_is_the_count_of_its_ancestors(parent: list[int]) -> None:
    expected = [len(chain(parent, row)) - 1 for row in range(len(parent))]
    assert depths(np.array(parent, np.int32)).tolist() == expected


@given(parent=trees(), data=st.data())
def test_marks_reach_all_ancestors_of_a_row(parent: list[int], data: st.DataObject) -> None:
    mine = data.draw(st.lists(st.booleans(), min_size=len(parent), max_size=len(parent)))
    expected = {above for row, hit in enumerate(mine) if hit for above in chain(parent, row)}
    found = with_ancestors(np.array(parent, np.int32), np.array(mine, bool))
    assert set(np.flatnonzero(found).tolist()) == expected
