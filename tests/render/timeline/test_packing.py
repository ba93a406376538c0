"""Packed numbers come back: read here by hand, in the browser by its own code."""

import json
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.render.packed import bytes_of
from traceview.render.base.safe_text import all_visible
from traceview.render.timeline import (
    as_characters,
    differences,
    packed_json,
    packed_numbers,
    packed_parts,
    packed_texts,
    script_json,
    zigzag,
)


def unpacked(column):
    planes = np.frombuffer(zlib.decompress(bytes_of(column["data"])), np.uint8)
    planes = planes.reshape(column["planes"], column["rows"])
    return [sum(int(v) << (8 * at) for at, v in enumerate(row)) for row in planes.T]


@given(st.binary(max_size=300))
def test_bytes_come_back_from_characters_that_need_no_escapes(data):
    packed = as_characters(data)
    assert bytes_of(packed) == data
    assert json.dumps(packed.decode()).replace("<", "") == f'"{packed.decode()}"'
    assert 8 * len(data) <= 6.5 * len(packed) <= 8 * len(data) + 13


@given(st.lists(st.integers(0, 2**47)), st.booleans())
def test_numbers_come_back(values, patterned):
    assert unpacked(packed_numbers(np.array(values, np.int64), patterned=patterned)) == values


@given(st.lists(st.lists(st.integers(0, 2**30))))
def test_numbers_in_parts_come_back_joined(values):
    parts = (np.array(part, np.int32) for part in values)
    assert unpacked(packed_parts(parts)) == [value for part in values for value in part]


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1), st.integers(0, 9))
def test_differences_of_parts_continue_those_before(values, at):
    whole = np.array(values, np.int32)
    first, rest = whole[: at + 1], whole[at + 1 :]
    parts = differences(first), differences(rest, int(first[-1]))
    assert np.concatenate(parts).tolist() == differences(whole).tolist()


def test_small_numbers_take_one_plane():
    assert packed_numbers(np.array([0, 255]))["planes"] == 1
    assert packed_numbers(np.array([0, 256]))["planes"] == 2


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_signed_differences_come_back(values):
    folded = unpacked(packed_numbers(zigzag(differences(np.array(values, np.int64)))))
    steps = [-(v + 1) // 2 if v % 2 else v // 2 for v in folded]
    assert np.cumsum(steps).tolist() == values


def test_no_text_ends_the_script_element():
    hostile = "</script><script>alert(1)</script><!--"
    text = script_json({"title": hostile})
    assert "<" not in text
    assert json.loads(text) == {"title": hostile}


@given(st.lists(st.text(max_size=9)))
def test_visible_texts_come_back(texts):
    texts = all_visible(texts)
    packed = packed_texts(texts)
    lines = zlib.decompress(bytes_of(packed["data"])).decode().split("\n")
    assert packed["rows"] == len(texts)
    assert lines == (texts or [""])


def test_json_comes_back():
    document = {"texts": ["ä", "\ud800x"]}
    assert json.loads(zlib.decompress(bytes_of(packed_json(document)))) == document
