"""Packed texts against lists of str, with the library and without it."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import in_place_of_c
from traceview.base.tables.packed_texts import PackedTexts

texts = st.lists(st.text(st.characters(exclude_characters="\0"), max_size=12), max_size=20)


@pytest.fixture(params=[nullcontext, in_place_of_c], autouse=True)
def way(request: pytest.FixtureRequest):
    with request.param():
        yield


@given(texts, st.data())
def test_texts_are_picked_by_number(every, data):
    numbers = data.draw(st.lists(st.integers(0, len(every) - 1)) if every else st.just([]))
    picked = PackedTexts.encoded(every).picked(np.array(numbers, np.int32))
    assert picked.separated
    assert picked.every.tolist() == [every[number] for number in numbers]
    # A slice shares the content of all.
    half = len(every) // 2
    some = PackedTexts.encoded(every).slice(slice(half, None))
    rest = range(len(every) - half)
    assert some.picked(np.array(rest, np.int64)).every.tolist() == every[half:]


@given(st.lists(texts, max_size=4))
def test_parts_are_joined(parts):
    joined = PackedTexts.joined([PackedTexts.encoded(part) for part in parts])
    assert joined.every.tolist() == [text for part in parts for text in part]
    assert list(joined) == [
        text.encode("utf-8", "surrogatepass") for part in parts for text in part
    ]


@given(texts, st.text("ab/", min_size=1, max_size=3))
def test_whether_a_part_occurs_in_any_text(every, part):
    packed = PackedTexts.encoded([*every, "b/a"])
    expected = any(part in text for text in (*every, "b/a"))
    assert packed.holds(part.encode()) == packed.holds(part.encode()) == expected


def test_texts_of_two_do_not_hold_a_part_together():
    assert not PackedTexts.encoded(["ab", "cd"]).holds(b"bc")
    assert not PackedTexts.encoded([]).holds(b"a")


@given(texts)
def test_plain_texts_are_printable_ascii(every):
    plain = all(text.isascii() and text.isprintable() for text in every)
    assert PackedTexts.encoded(every).is_plain == plain


def test_a_text_with_a_nul_is_not_plain():
    assert not PackedTexts.encoded(["a\0b"]).is_plain
