"""Sentences in lines of a terminal: no line of one word at the end, no list split in an entry."""

import pytest
from rich.cells import cell_len

from traceview.render.base.text import cut, wrapped

ADVICE = (
    "Use TF32 where a 10-bit mantissa is accurate enough: "
    "torch.set_float32_matmul_precision('high'). torch.autocast to bf16 is faster still."
)


@pytest.mark.parametrize("width", [60, 76, 79, 80])
def test_the_last_line_is_not_a_single_short_word(width):
    lines = wrapped(ADVICE, width, 9)
    assert " ".join(lines) == ADVICE
    assert max(map(len, lines)) <= width
    assert len(lines[-1]) >= 12


def test_no_line_more_is_taken_for_it():
    text = "a " * 39 + "bb cc dd"
    assert len(wrapped(text, 80, 9)) == 2


def test_a_long_path_is_split_after_a_slash_and_its_paragraph_stays_as_wide():
    """Found on collectives: the path and its full stop are one cell wider than the screen."""
    path = "all_gather_uneven/c10d::allgather_/record_param_comms/nccl:ALLGATHER_coalesced."
    assert wrapped(f"2.04 ms of that was CPU code of a library in {path}", 78, 9) == [
        "2.04 ms of that was CPU code of a library in",
        "all_gather_uneven/c10d::allgather_/record_param_comms/",
        "nccl:ALLGATHER_coalesced.",
    ]


@pytest.mark.parametrize("word", ["x" * 75, "a/" * 37 + "b", "𓀀" * 90, "漢" * 90, "/" * 200])
def test_a_word_wider_than_the_lines_is_whole_in_its_pieces(word):
    for width in range(10, 80):
        lines = wrapped(f"It was in {word}, for long.", width, 99)
        assert max(map(cell_len, lines)) <= width
        assert "".join(lines).replace(" ", "") == f"Itwasin{word},forlong."
        if cell_len(word) < width:
            assert any(word in line for line in lines)


def test_an_entry_of_a_list_stays_on_one_line():
    text = "instructions: float 169 · other 40 · integer 37 · special-function 32 · shuffle 10"
    assert wrapped(text, 58, 9) == [
        "instructions: float 169 · other 40 · integer 37 ·",
        "special-function 32 · shuffle 10",
    ]


def test_a_sentence_is_not_cut_just_after_a_clause_begins():
    text = "such as code loading and the first pinned allocation, not counting others"
    assert cut(text, 60) == "such as code loading and the first pinned allocation…"
    assert cut("one, two three four five six", 20) == "one, two three…"
