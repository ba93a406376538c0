"""The outcome of a gate as JSON, version 1. Absent values are null."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from traceview.comparison.figures import RunFigures
from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport
from traceview.render.base.json_text import SCHEMA_VERSION, written


def render_json(report: GateReport, version: str) -> str:
    """The report as one JSON document in ASCII."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "outcome": report.outcome,
        "summary": wording.summary(report),
        "headline": report.headline,
        "rules": [_decision(each) for each in report.decisions],
        "baseline": [_run(run) for run in report.baseline],
        "candidate": [_run(run) for run in report.candidate],
    }
    return f"{written(document)}\n"


def _decision(decision: Decision) -> dict[str, Any]:
    return {**asdict(decision), "sentence": wording.sentence(decision)}


def _run(run: RunFigures) -> dict[str, Any]:
    return {"name": run.name, "digest": run.digest, "figures": dict(run.figures)}
