"""What a gate writes: JUnit XML, GitHub's commands and summary, JSON by its schema, text."""

import json
from datetime import UTC, datetime
from xml.etree.ElementTree import fromstring

import pytest
from jsonschema import Draft202012Validator

from tests.comparison.runs import run
from traceview.render.gate import (
    job_summary,
    render_junit,
    render_text,
    workflow_commands,
)
from traceview.render.json import render_json, schema
from traceview.traces.comparison.figures import StepPart
from traceview.traces.comparison.gate import decide
from traceview.traces.comparison.gate_rules import GateCondition, Rule

HOSTILE = 'k<T>&"|\n\x1b[31m\x00::error::%0A,'
MOMENT = datetime(2026, 11, 22, 16, 0, tzinfo=UTC)
# The common schema (JUnit.xsd of Ant and Jenkins): required attributes, and children in order.
REQUIRED = {
    "testsuites": set(),
    "testsuite": {
        *("id", "package", "name", "timestamp", "hostname"),
        *("tests", "failures", "errors", "time"),
    },
    "properties": set(),
    "testcase": {"name", "classname", "time"},
    "failure": {"type"},
    "error": {"type"},
    "system-out": set(),
    "system-err": set(),
}
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase", "system-out", "system-err"],
    "testcase": ["failure", "error"],
}


@pytest.fixture(scope="module")
def report():
    drain = StepPart("idle", "", "sync-drain", "a,b:c.py:75", 8_000_000, 8_000_000, 4)
    width = f"load_bits[{HOSTILE}]"
    figures = {"synchronizations_per_step": 0.0, "step_ns": 10e6, width: 128.0}
    after = {"synchronizations_per_step": 1.0, "step_ns": 12e6, width: 32.0}
    rules = [
        Rule("synchronizations_per_step", (GateCondition("equals", 0.0),), 0.95),
        Rule("step_ns", (GateCondition("max_increase", 3.0, is_relative=True),), 0.95),
        Rule(width, (GateCondition("min", 128.0),), 0.95),
        Rule("step_ns", (GateCondition("max", 1e9),), 0.5),
    ]
    candidate = run(12, parts=[drain], figures=after, name=HOSTILE)
    return decide([run(10, figures=figures)], [candidate], rules)


def test_junit_is_of_the_common_schema(report):
    text = render_junit(report, MOMENT)
    root = fromstring(text)
    for element in root.iter():
        assert set(element.attrib) >= REQUIRED[element.tag]
        order = [CHILDREN[element.tag].index(child.tag) for child in element]
        assert order == sorted(order)
    suite = root.find("testsuite")
    counted = {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors")}
    assert counted == {"tests": 4, "failures": 2, "errors": 1}
    assert len(suite.findall("testcase")) == 4
    assert len(suite.findall("testcase/failure")) == 2
    assert suite.attrib["timestamp"] == "2026-11-22T16:00:00"
    assert "\x1b" not in text
    assert "\x00" not in text


def test_annotations_are_one_line_each_with_file_and_line(report):
    lines = workflow_commands(report).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error", "::warning"]
    assert "file=a%2Cb%3Ac.py,line=75,title=synchronizations_per_step regressed::" in lines[0]
    assert "\x1b" not in "".join(lines)
    assert "%250A" in lines[1]


def test_the_job_summary_is_a_table_that_names_cannot_break(report):
    lines = job_summary(report).splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 6
    assert all(row.replace("\\|", "").count("|") == 4 for row in rows)
    assert not any("<T>" in row for row in rows)


def test_json_is_of_its_schema(report):
    document = json.loads(render_json(report, "1"))
    Draft202012Validator(schema("gate")).validate(document)
    assert document["outcome"] == "regressed"
    assert [each["outcome"] for each in document["rules"]] == [
        "regressed",
        "undecided",
        "regressed",
        "passed",
    ]
    assert document["rules"][0]["place"] == "a,b:c.py:75"


@pytest.mark.parametrize("width", [40, 80, 160])
def test_text_ends_with_the_outcome(report, width):
    lines = render_text(report, width=width).splitlines()
    assert "Regressed: 2 regressed, 1 undecided, 1 passed of 4 rules." in " ".join(lines[-2:])
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", range(60, 100))
def test_no_sentence_is_broken_between_a_number_and_its_unit(report, width):
    lines = render_text(report, width=width).splitlines()
    assert not any(line.startswith(("%", "ms")) for line in lines)
