"""A report as JSON: the schema that scripts rely on, version 1.

Names are whole, numbers are as computed. What is absent is null; NaN and infinity, which JSON does
not know, are null as well.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from traceview.analyses.base import Analysis, Result, Skipped
from traceview.report import Outcome, RankedFinding, Report, TraceFacts
from traceview.tables import Cell

SCHEMA_VERSION = 1

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def render_json(report: Report, version: str) -> str:
    """The report as one JSON document in ASCII, which no terminal and no encoding can spoil."""
    document = as_document(report, version)
    return json.dumps(document, indent=1, allow_nan=False, default=_python_number) + "\n"


def as_document(report: Report, version: str) -> dict[str, Any]:
    """The report as what `json.dumps` takes. `version` is traceview's own."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "trace": _trace(report.trace),
        "analyses": {a.name: _analysis(a, report.outcomes[a.name]) for a in report.analyses},
        "findings": [_finding(finding) for finding in report.findings],
    }
    return {key: clean(value) for key, value in document.items()}


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
        "tables": _tables(outcome),
        "summary": dict(outcome.summary),
        "notes": list(outcome.notes),
    }


def _tables(result: Result) -> dict[str, list[dict[str, Cell]]]:
    return {name: list(table.rows()) for name, table in result.tables.items()}


def _finding(ranked: RankedFinding) -> dict[str, Any]:
    return {"analysis": ranked.analysis, **vars(ranked.finding)}


def _python_number(value: Any) -> int | bool:
    """What json asks for a type that it does not know: numpy's integers and booleans."""
    if isinstance(value, np.integer | np.bool_):
        number: int | bool = value.item()
        return number
    raise TypeError(f"{type(value).__name__} is not a cell")


def clean(value: Any) -> Any:
    """The same value with nothing in it that JSON or UTF-8 cannot hold."""
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
