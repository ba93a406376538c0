"""A cause of idle time added by one record, told in every output that tells of causes."""

import json
import subprocess
import sys

import pytest

from tests.places import REPOSITORY

# The record comes before the rooms that read it are imported, as it does in the file of causes. A
# launch that is late stands for what a rule of its own would find.
PROGRAM = """
import json, sys
from pathlib import Path
from traceview.base.vocabulary import causes
assert not [name for name in sys.modules if name.startswith("traceview.traces.facts")]
NEW = causes.add(causes.IdleCause(
    "slow-launch", letter=("y", "slow launches"), colors=("#010203", "#040506"),
    limit="cpu-launch", verdict="driver-bound", counted="launches", on_cpu=True,
    meaning="the launch call took most of the gap",
    lost="in slow launch calls",
    action="Update the driver ({fewer_launches}).",
    rank="its launch calls take long",
    apart="in launch calls that take long",
))
import numpy as np
import traceview
from tests.build import Export
from traceview.traces.comparison.changes import changes
from traceview.traces.facts.idle import causes as rules
from traceview.traces.ranks.job import PARTS
from traceview.traces.ranks.job_findings import activity_of_rank
from traceview.render.base.code import color_class, colors_css
from traceview.render.ranks.text import _LETTERS
from traceview.traces.timeline.tracks import CLASSES

by_rules = rules._causes
def _causes(*given):
    cause = by_rules(*given)
    return np.where(cause == causes.LAUNCH_LATE, NEW, cause).astype(np.uint8)
rules._causes = _causes

def recording(name, idle_ns):
    export = Export()
    for number in range(40):
        at = number * (100_000 + idle_ns)
        export.launch((at, at + 5_000), (at + 10_000, at + 110_000))
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    return export.load(folder)

fast, slow = recording("fast", 10_000), recording("slow", 900_000)
report = traceview.analyze(slow)
print(json.dumps({
    "findings": [each.finding.message + " " + each.finding.action for each in report.findings],
    "verdict": report.verdict.text,
    "causes": [row["meaning"] for row in report["gpu-idle"].tables["causes"].rows()],
    "phases": [row["verdict"] for row in report["phases"].tables["phases"].rows()],
    "changes": [each.text for each in changes(traceview.compare(fast, slow, force=True))],
    "rank": activity_of_rank("slow-launch", None),
    "heat": _LETTERS["slow-launch"],
    "parts": PARTS,
    "lanes": CLASSES,
    "css": [color_class("idle: slow-launch"), colors_css()],
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("recordings"))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_report_has_a_finding_with_its_remedy(told):
    finding = next(text for text in told["findings"] if "in slow launch calls" in text)
    assert finding.startswith("The GPU sat idle for ")
    assert "Update the driver (" in finding
    assert "{" not in finding
    assert told["causes"] == ["the launch call took most of the gap"]


def test_the_verdicts_name_it(told):
    assert "% in launch calls that take long" in told["verdict"]
    assert "driver-bound" in told["phases"]


def test_a_comparison_words_it(told):
    assert any("in slow launch calls" in text for text in told["changes"])


def test_ranks_word_it(told):
    assert told["rank"] == "its launch calls take long"
    assert told["heat"] == ["y", "slow launches"]
    assert "slow-launch" in told["parts"]


def test_the_page_and_the_timeline_draw_it(told):
    assert "idle-slow-launch" in told["lanes"]
    name, css = told["css"]
    assert name == "c-slow-launch"
    assert "--c-slow-launch:#010203" in css
    assert "--c-slow-launch:#040506" in css
