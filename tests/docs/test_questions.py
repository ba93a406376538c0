"""The page of each question says what it is to say, and its figures by hand are the report's."""

import sys
import tomllib
from dataclasses import replace

import pytest

import traceview
from tests.places import REPOSITORY
from traceview.traces.analyses import ALL

sys.path.insert(0, str(REPOSITORY / "scripts"))

from website.pages import unbroken
from website.worked import differences, worked

PAGES = tomllib.loads((REPOSITORY / "docs/questions.toml").read_text())
NAMES = [analysis.name for analysis in ALL]


def computed(name):
    """The examples of a question and the report's answer on the same recording."""
    recording = REPOSITORY / PAGES[name]["example"]
    return worked(PAGES[name]["worked"], recording), traceview.analyze(
        traceview.load(recording), name
    )[name]


def test_every_question_has_a_page_with_all_its_parts():
    assert [*PAGES] == NAMES
    for page in PAGES.values():
        assert {"means", "example", "computed", "worked", "do", "limits"} == page.keys()
        assert page["computed"].count("**") >= 4


@pytest.mark.parametrize("name", NAMES)
def test_figures_by_hand_are_those_of_the_report(name):
    examples, outcome = computed(name)
    assert examples
    for example in examples:
        # What only selects a row says nothing.
        assert set(example.columns) > set(example.key)
        assert [*differences(example, outcome)] == []


def test_another_figure_another_row_and_no_row_are_differences():
    (example,), outcome = computed("memory-copies")
    row = example.rows[0]
    other = replace(example, rows=((*row[:-1], row[-1] + 1),))
    assert [*differences(other, outcome)] == [
        f"copies.bytes_per_s: computed {row[-1] + 1}, reported {row[-1]}"
    ]
    unknown = replace(example, rows=(("D2D", *row[1:]),))
    assert "has no such row" in next(differences(unknown, outcome))
    assert "finds nothing" in next(differences(replace(example, rows=()), outcome))


def test_a_number_and_its_unit_stay_on_one_line():
    page = "Takes 3.2 ms, 40 %, of 5 GB/s and 3 msgs; `12 ms` is code.\n\n    run --for 3 s\n"
    wanted = page.replace("3.2 ms", "3.2\u00a0ms").replace("40 %", "40\u00a0%")
    assert unbroken(page) == wanted.replace("5 GB/s", "5\u00a0GB/s")
    assert unbroken("```text\n3 ms\n```\n") == "```text\n3 ms\n```\n"
