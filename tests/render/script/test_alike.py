"""Places like the one that a finding shows: what the page holds of them, and how it reads that."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import traceview
from tests.places import DATA
from traceview.render.report.evidence import MOST_ALIKE, alike_of, window_of
from traceview.traces.facts.steps.inferred import with_steps

MODULE = Path(traceview.__file__).parent / "render/script/timeline/alike.js"
NODE = shutil.which("node")

READ = """
const { start, end, at } = alikeOf(text, count, origin, from);
const alike = { start, end, count, at };
const said = [sayWhich(alike)];
for (const step of [1, 1, 1, -1]) said.push([goOn(alike, step).from, sayWhich(alike)]);
console.log(JSON.stringify([[...start], [...end], said]));
"""


def read(text, count, origin, start):
    names = f"const text = {json.dumps(text)}, count = {count}, origin = {origin}n, from = {start};"
    head = f"import {{ alikeOf, goOn, sayWhich }} from {json.dumps(MODULE.as_uri())};"
    command = [NODE, "--input-type=module", "--eval", head + names + READ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="no node here")
@pytest.mark.parametrize("count", [3, 5_000])
def test_the_page_goes_through_all_places_from_the_one_that_is_shown(count):
    # Times since 1970 are more than a double holds.
    origin = 1_700_000_000_000_000_001
    start, end, said = read(f"{origin + 7} 3 10 5 -2 20", count, origin, 21)
    assert (start, end) == ([7, 20, 23], [10, 25, 43])
    assert [each[0] for each in said[1:]] == [23, 7, 20, 7]
    texts = [said[0], *(each[1] for each in said[1:])]
    assert texts == (
        [f"{number} of 3 like it" for number in (2, 3, 1, 2, 1)]
        if count == 3
        else ["1 of 5,000 like it, 3 marked"] * 5
    )


@pytest.fixture(scope="module")
def report():
    trace = with_steps(traceview.load(DATA / "foreign/nanogpt.sqlite.xz"))
    return traceview.analyze(trace)


def test_a_finding_lists_its_places_and_the_one_that_it_shows(report):
    listed = 0
    for each in report.findings:
        window = window_of(report, each.finding)
        alike = alike_of(report, each.finding, window) if window else None
        if alike is None:
            continue
        listed += 1
        start, end = np.cumsum([int(part) for part in alike.text.split()]).reshape(-1, 2).T
        assert (end > start).all()
        assert (np.diff(start) >= 0).all()
        assert len(start) == min(alike.count, len(start)) <= MOST_ALIKE + 1
        if each.finding.lost:
            assert set(start) <= set(each.finding.lost.time.start)
            assert alike.count == len(each.finding.lost.time.start)
        place = max(np.searchsorted(start, window[0], side="right") - 1, 0)
        assert start[place] <= window[0] < end[place] or each.finding.lost
    assert listed >= 3


def test_the_page_holds_them(report):
    html = report.to_html()
    assert html.count("data-alike=") == html.count("data-count=") >= 3
    assert len(html[html.index("data-alike=") :].split('"')[1]) < 40_000
