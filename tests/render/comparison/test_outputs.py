"""A comparison as text, Markdown and JSON: sums that hold, and names that stay names."""

import json
import random
import re
from dataclasses import replace
from fractions import Fraction

import pytest
from rich.cells import cell_len

from tests.comparison.sides import (
    SYNCS,
    TORCH,
    a_comparison,
    a_difference,
    a_run,
)
from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.schemas.strictness import validator
from traceview.base import units
from traceview.render.comparison.document import parts_table
from traceview.render.comparison.html import render_html
from traceview.render.comparison.text import render_text
from traceview.render.json import render_json
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.figures import KernelShape, StepPart

WHOLE = a_comparison(environment=(TORCH,), counts=(SYNCS,))


def number(text):
    """A printed difference as an exact number of its unit."""
    return Fraction(text.split(" ")[0].replace("−", "-").replace(",", ""))


def random_parts(seed):
    draw = random.Random(seed)
    scale = 10 ** draw.randint(1, 10)
    return [
        a_difference(
            f"kernel_{at}",
            draw.randint(0, scale) if draw.random() < 0.7 else 0,
            Fraction(draw.randint(0, scale), draw.randint(1, 9)) if draw.random() < 0.7 else 0,
            group=draw.choice(["gemm", "elementwise", "optimizer"]),
        )
        for at in range(draw.randint(1, 60))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_printed_differences_sum_up_at_every_level(seed):
    table = parts_table(a_comparison(random_parts(seed)), 5)
    assert sum(number(each.amounts.difference) for each in table.groups) == number(
        table.total.difference
    )
    for group in table.groups:
        parts = [line.amounts for line in group.parts] + ([group.rest] if group.rest else [])
        assert sum(number(each.difference) for each in parts) == number(group.amounts.difference)
    lines = [line for group in table.groups for line in group.parts]
    groups = [group.amounts for group in table.groups]
    for amounts in (table.total, *groups, *(line.amounts for line in lines)):
        assert number(amounts.before) + number(amounts.difference) == number(amounts.after)
    for line in lines:
        assert line.part.before_ns or not number(line.amounts.before)
        assert line.part.after_ns or not number(line.amounts.after)


@pytest.mark.parametrize("seed", range(40))
def test_the_sums_are_the_times_of_the_headline(seed):
    """12.12 ms is no 12.2 ms, as 33.36 and −21.24 ms would have it, each rounded."""
    comparison = a_comparison(random_parts(seed))
    total = parts_table(comparison, 5).total
    times = units.durations(float(comparison.before_ns), float(comparison.after_ns))
    for printed, said in zip((total.before, total.after), times, strict=True):
        one, other = (text.partition(" ")[0].replace(",", "") for text in (printed, said))
        digits = min(len(text.partition(".")[2]) for text in (one, other))
        assert f"{float(one):.{digits}f}" == f"{float(other):.{digits}f}"


@pytest.mark.parametrize("seed", range(10))
def test_the_parts_in_json_sum_to_the_difference(seed):
    comparison = a_comparison(random_parts(seed))
    document = json.loads(render_json(comparison, "1.0"))
    parts = sum(part["difference_ns"] for part in document["parts"])
    assert parts == pytest.approx(document["step"]["difference_ns"], abs=1e-3)
    for part in document["parts"]:
        split = part["from_calls_ns"] + part["from_time_per_call_ns"]
        assert split == pytest.approx(part["difference_ns"], abs=1e-3)


def test_json_fits_its_schema():
    document = json.loads(render_json(WHOLE, "1.0"))
    validator("compare").validate(document)
    assert document["parts"][0]["name"] == "sync-drain"
    assert document["certainty"]["is_certain"] is True


def test_the_text_in_eighty_columns():
    text = render_text(WHOLE, width=80)
    assert "torch  2.10.0  →  2.11.0" in text
    assert "synchronizations  0  →  1" in text
    assert re.search(r"^sum +9\.24 +12\.48 +\+3\.24 +100\.0 %$", text, re.MULTILINE)


CANCELLING = a_comparison(
    (a_difference("gone", 90_000, 0, change="vanished"), a_difference("new", 0, 91_000))
)


@pytest.mark.parametrize("width", [60, 80])
def test_no_shares_where_parts_cancel(width):
    text = render_text(CANCELLING, width=width)
    assert re.search(r"^ +(before +after +)?difference$", text, re.MULTILINE)
    assert re.search(r"^sum +(90\.00 +91\.00 +)?\+1\.00$", text, re.MULTILINE)
    markdown = CANCELLING.to_markdown()
    assert "| before | after | difference |\n| --- | --- | ---: | ---: | ---: |\n" in markdown
    assert "| **sum** |  | 90.00 | 91.00 | +1.00 |\n" in markdown
    assert 'class="share"' not in render_html(CANCELLING, "1.0")


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("place", ["", "train", "generate_masks # # #/generate_masks # # # #"])
def test_rows_of_one_name_can_be_told_apart(width, place):
    """Four rows of a public comparison had one name, cut at both ends."""
    name = "cuBLAS fp32 GEMM 128×64 TN"
    sizes = [KernelShape((each, 64, 1), (128, 1, 1)) for each in (10, 40, 77)]
    parts = [
        StepPart("kernel", "gemm", name, place, 9_000 * side.grid[0], 0, 1, side, str(side.grid))
        for side in sizes
    ]
    kept = StepPart("kernel", "norm", "norm", place, 9_000, 0, 1, None, "norm")
    runs = []
    for number, each in enumerate([(kept, *parts), (kept,)]):
        ns = sum(part.time_ns for part in each)
        run = replace(a_run(str(number)), digest=str(number), parts=each, sequence=())
        runs.append(replace(run, step_ns=(ns,), window_ns=ns, sequence_ns=()))
    text = render_text(compare_runs([runs[0]], [runs[1]], force=True), width=width)
    table = text.split("Parts of the difference")[1].splitlines()
    rows = [line.split(" (")[0] for line in table if line.startswith("  cuBLAS")]
    assert len(set(rows)) == 3


@pytest.mark.parametrize("width", [40, 60, 80, 160])
@pytest.mark.parametrize("seed", range(3))
def test_no_line_is_wider_than_asked(seed, width):
    comparison = a_comparison(random_parts(seed), environment=(TORCH,), counts=(SYNCS,))
    assert max(map(cell_len, render_text(comparison, width=width).splitlines())) <= width


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS, "@user #12 | ](x)", "x" * 100_000, "𓀀" * 300])
def test_hostile_names_stay_names(name):
    parts = [
        a_difference(name, 1_000, 90_000, place=name, group=name),
        a_difference(name, 0, 90_000, kind="idle", place=name, change="appeared"),
    ]
    comparison = a_comparison(parts, before=(a_run(name, torch=name),), after=(a_run("b"),))
    for width in (40, 80):
        text = render_text(comparison, width=width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    markdown = comparison.to_markdown()
    assert "<script" not in markdown
    assert "@user" not in markdown
    validator("compare").validate(json.loads(render_json(comparison, "1.0")))


def test_markdown_has_the_table_and_what_changed():
    text = WHOLE.to_markdown()
    assert "- **+3.10 ms** The GPU now sits idle for 3.10 ms per step" in text
    assert "| **sum** |  | 9.24 | 12.48 | +3.24 | 100.0 % |" in text
    assert "> Different torch: 2.10.0 before, 2.11.0 after" in text.replace("\\", "")
