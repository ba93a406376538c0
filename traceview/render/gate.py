"""The outcome of a gate as text, JSON, JUnit XML, Markdown and output for GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.render.base.json_text import JsonKey, JsonShape, items_of
from traceview.render.base.safe_text import visible
from traceview.render.base.text import SENTENCE, drawn, grid, note_block
from traceview.render.document import Document, Grid, GridRow, Section
from traceview.render.markdown import render_markdown
from traceview.traces.comparison import gate
from traceview.traces.comparison.figures import RunFigures
from traceview.traces.comparison.gate_rules import Decision, GateReport

_STYLES = {"passed": "green", "regressed": "bold red", "undecided": "yellow"}
_FIGURE = 60


def render_text(report: GateReport, *, width: int = 80, color: bool = False) -> str:
    """The headline of the comparison, each rule, and the outcome as the last line of a log."""
    return drawn(_blocks(report), width, color)


def described(report: GateReport) -> str:
    """The `repr`: the text that the command prints."""
    return render_text(report).rstrip("\n")


def _blocks(report: GateReport) -> Iterator[RenderableType]:
    yield note_block(visible(report.headline, SENTENCE), "")
    rows = grid("", "", "")
    for each in report.decisions:
        demanded = gate.condition_text(each.figure, each.condition)
        rows.add_row(
            Text(gate.mark(each), _STYLES[each.outcome]),
            Text(visible(each.figure, _FIGURE)),
            Text(demanded, "dim"),
        )
    yield rows
    details = gate.failed_decisions(report.decisions)
    if details:
        yield Group(*(note_block("", gate.sentence(each)) for each in details))
    yield Text(gate.summary(report), _STYLES[report.outcome])


_RUN = JsonShape(RunFigures, "name digest figures")
_RULE = JsonShape(
    Decision, "*", JsonKey("sentence", str, lambda decision, _: gate.sentence(decision))
)
GATE = JsonShape(
    GateReport,
    "outcome",
    JsonKey("summary", str, lambda report, _: gate.summary(report)),
    "headline",
    items_of("rules=decisions", _RULE),
    items_of("baseline", _RUN),
    items_of("candidate", _RUN),
    outcome="the worst of all rules",
    headline="faster or slower by how much, and how sure that is",
)


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
    demanded = gate.condition_text(decision.figure, decision.condition)
    name = _allowed(f"{decision.figure} {demanded}")
    case = SubElement(suite, "testcase", {"classname": _SUITE, "name": name, "time": "0"})
    if decision.outcome == "passed":
        return
    text = _allowed(gate.sentence(decision))
    kind = "failure" if decision.outcome == "regressed" else "error"
    SubElement(case, kind, {"message": text, "type": decision.outcome}).text = text


def _allowed(text: str) -> str:
    """The text without characters that XML 1.0 cannot represent."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


_PLACE = re.compile(r"(?:.*[ (])?(?P<file>[^()\s]+):(?P<line>\d+)\)?$", re.DOTALL)
_NAME, _SENTENCE = 120, 1_000


def workflow_commands(report: GateReport) -> str:
    """A workflow command per rule that did not pass, with file and line if known."""
    return "".join(
        f"{each}\n" for each in map(_annotation, gate.failed_decisions(report.decisions))
    )


def _annotation(decision: Decision) -> str:
    level = "error" if decision.outcome == "regressed" else "warning"
    place = _PLACE.match(decision.place)
    where = f"file={_property(place['file'])},line={place['line']}," if place else ""
    title = _property(f"{visible(decision.figure, _NAME)} {decision.outcome}")
    return f"::{level} {where}title={title}::{_data(visible(gate.sentence(decision), _SENTENCE))}"


def _data(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text, _SENTENCE)).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: GateReport) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY; no name becomes markup."""
    return render_markdown(gate_document(report))


def gate_document(report: GateReport) -> Document:
    """One row per rule."""
    rules = Grid(("rule", "outcome"), tuple(map(_row, report.decisions)), sentences=("",))
    title = f"traceview gate: {report.outcome}"
    return Document(
        title=title, headline=report.headline, sections=(Section("", (rules,), aside=False),)
    )


def _row(decision: Decision) -> GridRow:
    rule = f"{decision.figure} {gate.condition_text(decision.figure, decision.condition)}"
    return GridRow((rule, gate.mark(decision), gate.sentence(decision)))
