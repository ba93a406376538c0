"""The outcome of a gate as JUnit XML: a test case per rule, an undecided one as an error."""

from __future__ import annotations

import re
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport

_SUITE = "traceview gate"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: GateReport, moment: datetime) -> str:
    """The XML document of one test suite, in the order that the common schema demands."""
    outcomes = [each.outcome for each in report.decisions]
    root = Element("testsuites")
    suite = SubElement(
        root,
        "testsuite",
        {
            "id": "0",
            "package": "traceview",
            "name": _SUITE,
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S"),
            "hostname": "localhost",
            "tests": str(len(outcomes)),
            "failures": str(outcomes.count("regressed")),
            "errors": str(outcomes.count("undecided")),
            "time": "0",
        },
    )
    SubElement(suite, "properties")
    for each in report.decisions:
        _case(suite, each)
    SubElement(suite, "system-out").text = _allowed(report.headline)
    SubElement(suite, "system-err")
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def _case(suite: Element, decision: Decision) -> None:
    demanded = wording.condition_text(decision.figure, decision.condition)
    name = _allowed(f"{decision.figure} {demanded}")
    case = SubElement(suite, "testcase", {"classname": _SUITE, "name": name, "time": "0"})
    if decision.outcome == "passed":
        return
    text = _allowed(wording.sentence(decision))
    kind = "failure" if decision.outcome == "regressed" else "error"
    SubElement(case, kind, {"message": text, "type": decision.outcome}).text = text


def _allowed(text: str) -> str:
    """The text without characters that XML 1.0 cannot represent."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
