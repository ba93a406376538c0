"""Hostile text is shown harmless, on one line, and short."""

import time

import pytest
from rich.cells import cell_len

from traceview.render.base.safe_text import (
    all_visible,
    cells_of,
    shortened,
    shortened_apart,
    visible,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name", "plain name"),
        ("two\nlines\ttab\r", r"two\nlines\ttab\r"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202etxt.exe\u2066", r"abc\u202etxt.exe\u2066"),
        ("a\u2028b\u200bc\x00", r"a\u2028b\u200bc\x00"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("<b>&\"'", "<b>&\"'"),
        ("µs – … 漢字 é", "µs – … 漢字 é"),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize("odd", ["fine", "two\nlines", "x" * 401, ""])
def test_many_texts_are_shown_as_each_alone(odd):
    texts = [*(f"layer_{number}" for number in range(10_000)), odd, "漢字"]
    assert all_visible(texts) == [visible(text) for text in texts]
    assert all_visible([]) == []


def test_a_long_text_keeps_both_ends():
    assert visible("abcdefghij", 5) == "ab…ij"
    assert visible("begin" + "x" * 10_000 + "end", 21) == "beginxxxxx…xxxxxxxend"


def test_ten_megabytes_cost_nothing():
    began = time.thread_time()
    assert len(visible("\x1b" * 10_000_000, 100)) < 500
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("width", [1, 2, 3, 7, 10, 15])
@pytest.mark.parametrize("text", ["a_long_kernel_name", "漢字漢字漢字漢字", "a漢b字c漢d字"])
def test_shortened_fits_and_says_so(text, width):
    short = shortened(text, width)
    assert cell_len(short) <= width
    assert ("…" in short) == (width >= 3 and cell_len(text) > width)


def test_shortened_leaves_what_fits():
    assert shortened("gemm", 4) == "gemm"
    assert shortened("a_long_kernel_name", 11) == "a_lon…_name"


def test_names_that_differ_in_the_middle_stay_different():
    names = [f"sm80_xmma_gemm_f32f32_f32_{kind}_n_tilesize128x128_cublas" for kind in ("tn", "nn")]
    assert shortened_apart([*names, "reduce", names[0]], 21) == [
        "…32_tn_n_t…128_cublas",
        "…32_nn_n_t…128_cublas",
        "reduce",
        "…32_tn_n_t…128_cublas",
    ]


def test_names_that_differ_at_an_end_are_shortened_in_the_middle():
    assert shortened_apart(["a_long_kernel_name", "b_long_kernel_name"], 11) == [
        "a_lon…_name",
        "b_lon…_name",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "work was queued already and waited for another stream",
        "cudaLaunchKernel called 12 µs after; in epoch_0/a_very_long_name_of_a_range/backward",
        "on its stream behind void gemm<float, 4>(float const*), which ended 2 µs earlier",
    ],
)
def test_prose_stays_whole_in_a_table_and_a_name_does_not(text):
    """The column declares which of the two it holds."""
    assert cells_of([text], 11, prose=True) == [text]
    assert cell_len(cells_of([text], 11, prose=False)[0]) == 11


def test_names_that_differ_late_keep_their_beginning():
    names = [f"gemm_kernel_with_a_long_name_that_goes_on_{i}_and_on_and_on" for i in range(3)]
    assert shortened_apart(names, 24) == [f"gemm_…on_{i}_and_on_and_on" for i in range(3)]


def test_what_has_lost_its_middle_has_one_ellipsis():
    assert shortened("abcdefgh…ijklmnop", 9) == "abcd…mnop"
    assert shortened("abcd…efghijklmnop", 11) == "abcd…lmnop"
