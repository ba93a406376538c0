"""Every output of every shipped recording: one screen in the terminal, and the same in the data.

The numbers of those that traceview recorded itself are held to what they were.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len

import traceview
from tests.contracts.report_numbers import KEPT, numbers_of, recordings
from tests.places import REPOSITORY
from tests.render.schemas.strictness import validator
from traceview.render.json import render_json
from traceview.render.report.document import tiles
from traceview.render.screen import MOST_LINES, render_screen
from traceview.traces.reporting import Report

FOREIGN = sorted((REPOSITORY / "tests/data/foreign").glob("*.sqlite.xz"))
EXPECTED = json.loads(KEPT.read_text())
PATHS = {**recordings(), **{str(path.relative_to(REPOSITORY)): path for path in FOREIGN}}


@pytest.fixture(scope="module", params=PATHS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def report(name) -> Report:
    return traceview.analyze(traceview.load(Path(PATHS[name])))


@pytest.fixture(scope="module")
def document(report):
    return json.loads(render_json(report, traceview.__version__, None))


@pytest.fixture(scope="module")
def screen(report):
    """The report on a terminal of so many columns."""
    return cache(lambda width: render_screen(report, width=width))


@pytest.fixture(scope="module")
def reports():
    return validator("report")


def test_every_recording_is_held_to_its_numbers():
    assert sorted(EXPECTED) == sorted(recordings())


def test_numbers_are_unchanged(name, document):
    if name in EXPECTED:
        assert numbers_of(document) == EXPECTED[name]


def test_the_json_fits_its_schema(reports, document):
    """Of long tables the first rows: they are all made from the same declared columns."""
    analyses = {key: answer | first_rows(answer) for key, answer in document["analyses"].items()}
    reports.validate(document | {"analyses": analyses})


def first_rows(answer):
    tables = answer.get("tables", {})
    return {"tables": {name: rows[:5] for name, rows in tables.items()}} if tables else {}


@pytest.mark.parametrize("width", [80, 160])
def test_the_report_fits_a_screen(screen, width):
    lines = screen(width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= width


def test_every_finding_above_info_is_on_the_screen(report, screen):
    """At 80 columns: its severity, its analysis and the start of its message.

    `low` ones may be counted only, where they take the room of a remedy.
    """
    lines = screen(80).splitlines()
    heads = [line for line in lines if line.startswith(("high ", "medium ", "low "))]
    # What a finding saves is whole: the name of its analysis may be on the next line.
    whole = [line if line.endswith("]") else lines[lines.index(line) + 1] for line in heads]
    shown = [
        (head.split()[0], line.rpartition("[")[2].removesuffix("]"))
        for head, line in zip(heads, whole, strict=True)
    ]
    urgent = [each for each in report.findings if each.finding.severity != "info"]
    counted = re.search(r"^… and (\d+) more low findings? in --all$", screen(80), re.MULTILINE)
    assert len(shown) == len(urgent) - int(counted[1] if counted else 0)
    for each in urgent:
        told = (each.finding.severity, each.analysis)
        if shown[:1] == [told]:
            del shown[0]
        else:
            assert each.finding.severity == "low"
    assert not shown


def test_the_screen_says_what_the_data_says(report, screen, document):
    words = " ".join(screen(80).split())
    assert document["verdict"]["text"] in words
    for tile in tiles(report.scoreboard):
        assert f"{tile.name} {tile.value}" in words
        assert tile.field in document["scoreboard"]
    assert document["scoreboard"] == vars(report.scoreboard)
    for field in ("steps", "step_median_ns", "gpu_busy_pct"):
        assert document["scoreboard"][field] == document["verdict"][field]
