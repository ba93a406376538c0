"""The document of a gate: its outcome and what each rule says."""

from __future__ import annotations

from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport
from traceview.render.documents.model import Document, Grid, GridRow, Section


def gate_document(report: GateReport) -> Document:
    """One row per rule."""
    rules = Grid(("rule", "outcome"), tuple(map(_row, report.decisions)), sentences=("",))
    title = f"traceview gate: {report.outcome}"
    return Document(
        title=title, headline=report.headline, sections=(Section("", (rules,), aside=False),)
    )


def _row(decision: Decision) -> GridRow:
    rule = f"{decision.figure} {wording.condition_text(decision.figure, decision.condition)}"
    return GridRow((rule, wording.mark(decision), wording.sentence(decision)))
