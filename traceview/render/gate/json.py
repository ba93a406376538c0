"""The outcome of a gate as JSON, version 1. Absent values are null."""

from __future__ import annotations

from traceview.comparison.figures import RunFigures
from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport
from traceview.render.base.json_shape import JsonKey, JsonShape, document
from traceview.render.base.json_text import written

_RUN = JsonShape(RunFigures, "name digest figures")
_RULE = JsonShape(
    Decision,
    "*",
    JsonKey("sentence", str, lambda decision, _: wording.sentence(decision)),
)
GATE = JsonShape(
    GateReport,
    "outcome",
    JsonKey("summary", str, lambda report, _: wording.summary(report)),
    "headline",
    JsonKey("rules", [_RULE], lambda report, _: report.decisions),
    JsonKey("baseline", [_RUN], lambda report, _: report.baseline),
    JsonKey("candidate", [_RUN], lambda report, _: report.candidate),
    outcome="the worst of all rules",
    headline="faster or slower by how much, and how sure that is",
)


def render_json(report: GateReport, version: str) -> str:
    """The report as one JSON document in ASCII."""
    return f"{written(document(GATE, report, version))}\n"
