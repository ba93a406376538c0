"""The outcome of a gate as JSON, version 1. Absent values are null."""

from __future__ import annotations

from traceview.comparison.figures import RunFigures
from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport
from traceview.render.base.json_shape import Key, Shape, document
from traceview.render.base.json_text import written

_RUN = Shape(RunFigures, "name digest figures")
_RULE = Shape(
    Decision,
    "*",
    Key("sentence", str, lambda decision, _: wording.sentence(decision)),
)
GATE = Shape(
    GateReport,
    "outcome",
    Key("summary", str, lambda report, _: wording.summary(report)),
    "headline",
    Key("rules", [_RULE], lambda report, _: report.decisions),
    Key("baseline", [_RUN], lambda report, _: report.baseline),
    Key("candidate", [_RUN], lambda report, _: report.candidate),
    outcome="the worst of all rules",
    headline="faster or slower by how much, and how sure that is",
)


def render_json(report: GateReport, version: str) -> str:
    """The report as one JSON document in ASCII."""
    return f"{written(document(GATE, report, version))}\n"
