"""The figures of speed_claims.md: ratios follow from times, docs/bench.md repeats them."""

import re

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "benchmarks/kernels/speed_claims.md").read_text()
SCALE = {"ns": 1, "µs": 1e3, "ms": 1e6}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line.count("|") == 12 and "---" not in line
][1:]
BYTES = {"gelu": 8, "add": 12, "strided_copy": 8}
"""That an element of float32 needs at least."""


def ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * SCALE[unit]


def percent(text: str) -> float:
    return float(text.removesuffix(" %"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:4]))
def test_a_ratio_follows_from_its_times(row):
    operation, _, size, _, took, against, its, of, _, least, holds = row
    if against == "peak":
        expected = BYTES[operation] * int(size.replace(",", "")) / 4.8 / ns(took) * 100 / 1e3
    else:
        expected = 100 * ns(its) / ns(took)
    # Three digits of each time are there.
    assert percent(of) == pytest.approx(expected, rel=0.011)
    assert (holds == "holds") == (percent(of) >= percent(least))


def test_the_page_has_what_is_asked_for():
    assert len(ROWS) > 25
    assert {row[0] for row in ROWS} >= {"gelu", "softmax", "flash_attention", "matmul"}
    assert {row[2] for row in ROWS if row[:2] == ["softmax", "float32"]} == {
        "256",
        "1,024",
        "4,096",
        "16,384",
    }


def test_the_docs_say_what_the_page_says():
    said = re.sub(r"\s+", " ", (REPOSITORY / "docs/bench.md").read_text())
    [gelu] = [percent(row[7]) for row in ROWS if row[0] == "gelu" and row[3] == "triton"]
    flash = [percent(row[7]) / 100 for row in ROWS if row[0].startswith("flash_attention")]
    assert f"Triton's GELU reaches {gelu:.0f} % of peak bandwidth" in said
    assert f"flash attention at {min(flash):.1f} to {max(flash):.1f} times the speed" in said
