"""Texts are numbered in C as a dictionary numbers them, whatever bytes they hold."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview.base.tables import Texts
from traceview.base.tables.packed_texts import (
    CollidingTextsError,
    PackedTextColumn,
    PackedTexts,
    TextNumbers,
    packed,
)

raw = st.lists(
    st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"layer_1", b"layer_1\0", b"a" * 9]),
    max_size=30,
)


def numbered(numbers: TextNumbers, parts: Sequence[Sequence[bytes]]) -> tuple[list[int], object]:
    codes = [code for part in parts for code in numbers.of(PackedTexts.of(part)).tolist()]
    return codes, numbers.distinct().raw()


@given(st.lists(raw, max_size=6))
def test_numbers_are_those_of_first_appearance(parts: list[list[bytes]]) -> None:
    every = [text for part in parts for text in part]
    first = list(dict.fromkeys(every))
    expected = [first.index(text) for text in every], first
    assert numbered(TextNumbers(), parts) == expected
    assert without_c(lambda: numbered(TextNumbers(), parts)) == expected


def test_a_table_that_grows_keeps_its_numbers() -> None:
    numbers = TextNumbers()
    texts = [b"%d" % (at % 70_000) for at in range(100_000)]
    for begin in range(0, len(texts), 999):
        part = texts[begin : begin + 999]
        assert numbers.of(PackedTexts.of(part)).tolist() == [int(text) for text in part]
    assert len(numbers) == 70_000
    assert numbers.distinct()[69_999] == b"69999"


def colliding(count: int) -> Iterator[bytes]:
    """Texts of 16 bytes with one hash: the second word undoes what the first one did."""
    mix, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    for first in range(count):
        hashed = ((16 * mix & mask) ^ first) * mix & mask
        yield first.to_bytes(8, "little") + (hashed ^ hashed >> 32).to_bytes(8, "little")


def test_texts_that_are_made_to_collide_are_refused() -> None:
    few, many = (PackedTexts.of(list(colliding(count))) for count in (500, 600))
    assert TextNumbers().of(few).tolist() == list(range(500))
    with pytest.raises(CollidingTextsError, match="collide"):
        TextNumbers().of(many)


@pytest.mark.parametrize(
    ("texts", "sound"),
    [
        ([b"a", b""], True),
        (["é".encode(), b"\0x"], True),
        ([b"\xc3", b"\xa9"], False),
        ([b"\xed\xa0\x80"], False),
        ([b"\xff"], False),
        ([], True),
    ],
)
def test_half_a_character_is_not_made_whole_by_the_next_text(
    texts: list[bytes], sound: bool
) -> None:
    assert PackedTexts.of(texts).is_utf8 == sound


@given(st.lists(st.text(max_size=5) | st.sampled_from(["a\0b", "\ud800"]), max_size=12))
def test_a_packed_column_reads_as_the_column_of_its_texts(texts: list[str]) -> None:
    plain = Texts.of([*texts, None])
    column = PackedTextColumn(plain.codes, packed(plain))
    assert list(column.values) == list(plain.values)
    assert list(column.decode()) == [*texts, None] == [column[row] for row in range(len(plain))]
    for some in (range(0, len(plain), 2), range(1, len(plain), 3)):
        part = PackedTextColumn(plain.codes, packed(plain)).take(np.array(some, np.int64))
        assert list(part.decode()) == [[*texts, None][row] for row in some]
    rows = np.arange(len(plain) - 1, -1, -1)
    assert list(column.take(rows).decode()) == [None, *texts[::-1]]
    assert list(column.take(rows[:1]).decode()) == [None]
    assert [column.value(code) for code in range(len(column.values))] == list(plain.values)
    assert packed(column).holds(b"ab") == any("ab" in text for text in texts)
