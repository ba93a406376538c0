"""Joins by process and key, against dictionaries; with the library and without it."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import in_place_of_c
from traceview.base.compiled import library
from traceview.traces.facts.operations import match

wide = st.sampled_from([-(2**62), -5, 0, 7, 2**40, 2**62])
process = st.integers(0, 2)
key = st.integers(0, 9) | wide


@pytest.mark.parametrize("way", [nullcontext, in_place_of_c])
@given(
    st.lists(st.tuples(process, key), max_size=30),
    st.lists(st.tuples(process, key, st.booleans()), max_size=30),
)
def test_a_join_finds_the_first_row_of_the_same_process(way, have, wanted):
    with way():
        found = match(
            np.array([p for p, _ in have], np.int32),
            np.array([k for _, k in have], np.int64),
            np.array([p for p, _, _ in wanted], np.int32),
            np.array([k for _, k, _ in wanted], np.int64),
            np.array([usable for _, _, usable in wanted], bool),
        )

    expected = [have.index((p, k)) if usable and (p, k) in have else -1 for p, k, usable in wanted]
    assert found.tolist() == expected


@pytest.mark.parametrize("count", [200, 5_000])
def test_a_join_of_keys_that_are_made_to_collide(count):
    """All of them, and absent ones, belong in one slot of the hash table of the C code."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    keys = np.array([number * inverse % 2**64 for number in range(2 * count)], np.uint64)
    have, process = keys[:count].view(np.int64), np.zeros(2 * count, np.int32)
    found = match(process[:count], have, process, keys.view(np.int64), process == 0)
    assert found.tolist() == [*range(count), *[-1] * count]
    slots, room = np.empty(1 << 14, np.int32), np.empty(count, np.int32)
    given = (have, count, have, count, slots, 14, room)
    assert library.call("traceview_match_keys", *given) == (count <= 256)
