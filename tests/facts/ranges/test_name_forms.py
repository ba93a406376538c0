"""Texts by form: one of each form answers for all of them."""

import random
import re
from contextlib import nullcontext

import numpy as np
import pytest

from tests.compiled.test_text_numbers import colliding
from tests.oracles.plain_library import in_place_of_c
from traceview.base.tables.packed_texts import PackedTexts
from traceview.traces.facts.ranges import origins
from traceview.traces.facts.ranges.origins import MOST_DIGITS, forms_of
from traceview.traces.facts.ranges.ranges import pattern_of
from traceview.traces.trace.sqlite.row_reader import lenient_text, lenient_texts


@pytest.fixture(params=["C", "plain"], autouse=True)
def way(request):
    with in_place_of_c() if request.param == "plain" else nullcontext():
        yield


NAMES = ["step_1", "step_2", "step_10", "forward", "step_1", "h2d 7 of 9", "", "h2d 3 of 8", "ß 5"]


def test_texts_that_differ_in_digits_alone_are_of_one_form():
    forms = forms_of(PackedTexts.encoded(NAMES))

    assert forms.form.tolist() == [0, 0, 1, 2, 0, 3, 4, 3, 5]
    assert forms.examples == ["step_1", "step_10", "forward", "h2d 7 of 9", "", "ß 5"]
    assert forms.matching(re.compile(r"step_\d")).tolist() == [
        *(name.startswith("step_") for name in NAMES),
        False,
    ]


def test_rules_are_asked_of_whole_texts():
    names = ["a\nstep_1", "step_2\nb", "xstep_3", "", "\n", "step_4", "of: Warm up", "warm_up\n"]
    forms = forms_of(PackedTexts.encoded(names))

    for pattern in ("step", r".*p_\d$", "", "(?s:.*)b", r"\n"):
        rule = re.compile(pattern)
        assert forms.matching(rule).tolist() == [*map(bool, map(rule.match, names)), False]
    ends = forms.meeting(lambda text: text.endswith("up"), re.compile("(?i)warm.*"))
    assert np.flatnonzero(ends).tolist() == [6]


def test_digits_between_letters_are_no_number():
    names = ["f8e4m3fn", "f8e5m2fn", "h2d", "d2h 4", "d2h 5", "a1", "a2", "1a", "2a", "x12y 3"]

    assert forms_of(PackedTexts.encoded(names)).examples == [
        "f8e4m3fn",
        "f8e5m2fn",
        "h2d",
        "d2h 4",
        "a1",
        "1a",
        "x12y 3",
    ]


def test_texts_of_one_form_have_one_pattern():
    rng = random.Random(5)
    names = ["".join(rng.choices("ab1290_ é", k=rng.randrange(9))) for _ in range(4_000)]
    forms = forms_of(PackedTexts.encoded(names))
    examples = forms.examples

    for name, form in zip(names, forms.form.tolist(), strict=True):
        assert pattern_of(name) == pattern_of(examples[form])


@pytest.mark.parametrize("odd", ["", "\n", "a\nb", "\n\0\x1e\x1f", "\ud800 1"])
def test_the_last_number_of_each_text(odd):
    names = [*NAMES, odd, "9" * MOST_DIGITS, "9" * (MOST_DIGITS + 1), "1 2\n3 x"]

    numbers = forms_of(PackedTexts.encoded(names)).last_numbers()

    found = [re.search(r"(\d+)\D*$", name) for name in names]
    assert numbers.tolist() == [
        int(each[1]) if each and len(each[1]) <= MOST_DIGITS else -1 for each in found
    ]


def test_texts_that_are_made_to_collide_have_forms():
    texts = [raw for raw in colliding(2_000) if not re.search(rb"[0-9]", raw)]
    assert len(texts) > 600
    forms = forms_of(PackedTexts.of([*texts, texts[5]]))
    assert forms.form.tolist() == [*range(len(texts)), 5]


def test_no_texts_have_no_forms():
    forms = forms_of(PackedTexts.encoded([]))

    assert (len(forms.examples), forms.last_numbers().tolist()) == (0, [])
    assert forms.matching(re.compile("")).tolist() == [False]


def test_texts_decoded_together_are_those_decoded_one_by_one():
    pieces = [
        b"a",
        b"\xc3",
        b"\xa9",
        b"\xe2\x82",
        b"\xac",
        b"\xf0\x9f",
        b"\x80",
        b"",
        b"\xff",
        b"z\0",
    ]
    rng = random.Random(3)
    for most in (9, 10):
        for _ in range(300):
            raw = [b"".join(rng.choices(pieces[:most], k=rng.randrange(4))) for _ in range(5)]
            assert lenient_texts(raw) == [lenient_text(each) for each in raw]
    assert lenient_texts([]) == []
    assert lenient_texts([b""]) == [""]


def test_forms_of_many_texts_are_those_of_each():
    rng = np.random.default_rng(1)
    names = [
        f"{word}_{at}, id = {at * 37}" for at, word in enumerate(rng.choice(["a", "b"], 3_000))
    ]
    forms = forms_of(PackedTexts.encoded(names))

    zeroed = [re.sub(r"\d", "0", name) for name in names]
    assert len(forms.examples) == len(set(zeroed))
    assert forms.last_numbers().tolist() == [at * 37 for at in range(3_000)]


def test_forms_of_texts_in_parts_are_those_of_all_at_once(monkeypatch):
    rng = random.Random(7)
    names = ["".join(rng.choices("ab12\0é", k=rng.randrange(7))) for _ in range(3_000)]
    whole = forms_of(PackedTexts.encoded(names))
    monkeypatch.setattr(origins, "_TEXTS_EACH", 7)
    parts = forms_of(PackedTexts.encoded(names))

    assert parts.form.tolist() == whole.form.tolist()
    assert parts.examples == whole.examples
