"""A report as JSON: the schema that scripts rely on, version 1.

Names are whole, numbers are as computed. What is absent is null; NaN and infinity, which JSON does
not know, are null as well.
"""

from __future__ import annotations

from typing import Any

from traceview.analyses.base import Analysis, Skipped
from traceview.render.json_text import clean, written
from traceview.report import Outcome, RankedFinding, Report, TraceFacts

__all__ = ["SCHEMA_VERSION", "clean", "render_json"]

SCHEMA_VERSION = 1


def render_json(report: Report, version: str) -> str:
    """The report as one JSON document in ASCII, which no terminal and no encoding can spoil."""
    return written(_document(report, version)) + "\n"


def _document(report: Report, version: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "trace": _trace(report.trace),
        "analyses": {a.name: _analysis(a, report.outcomes[a.name]) for a in report.analyses},
        "findings": [_finding(finding) for finding in report.findings],
    }


def _trace(trace: TraceFacts) -> dict[str, Any]:
    return {
        "path": trace.path,
        "recorder": trace.recorder,
        "recorder_version": trace.recorder_version,
        "export_schema_version": trace.export_schema_version,
        "duration_ns": trace.duration_ns,
        "gpus": [vars(gpu) for gpu in trace.gpus],
        "processes": [vars(process) for process in trace.processes],
        "row_counts": dict(trace.row_counts),
        "run": dict(trace.run),
        "selection": {
            "ranges": list(trace.selection.include),
            "exclude_ranges": list(trace.selection.exclude),
        },
        "strict": trace.strict,
        "peaks": dict(trace.peaks),
        "warnings": list(trace.warnings),
    }


def _analysis(analysis: Analysis, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Skipped):
        return {"status": "skipped", "reason": outcome.reason, "remedy": outcome.remedy}
    return {
        "status": "ok",
        "title": analysis.title,
        "question": analysis.question,
        "tables": dict(outcome.tables),
        "summary": dict(outcome.summary),
        "notes": list(outcome.notes),
    }


def _finding(ranked: RankedFinding) -> dict[str, Any]:
    return {"analysis": ranked.analysis, **vars(ranked.finding)}
