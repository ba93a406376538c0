"""A report as JSON: the schema that scripts rely on, version 1.

Names are whole and numbers as computed. Absent values are null, and so are NaN and infinity, which
JSON lacks. A long table is cut to the rows that matter most; `left_out` beside `tables` counts the
other rows and has the sums of their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from traceview.analyses.base import Analysis, Result, Skipped, TableSpec
from traceview.analyses.verdict import RunTime
from traceview.findings import Forecast
from traceview.ranking import Outcome, RankedFinding
from traceview.render.base.json_shape import JsonKey, JsonShape
from traceview.render.base.json_text import SCHEMA_VERSION, clean, finding_fields, pieces
from traceview.render.base.row_limit import MOST_ROWS, LimitedTable, limited
from traceview.report import Report, TraceFacts
from traceview.trace import Selection

__all__ = ["SCHEMA_VERSION", "clean", "json_pieces", "render_json"]


def render_json(report: Report, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The report as one JSON document in ASCII, which survives any terminal and encoding.

    It has at most `most_rows` rows of each table, all if that is None.
    """
    return "".join(json_pieces(report, version, most_rows))


def json_pieces(report: Report, version: str, most_rows: int | None = MOST_ROWS) -> Iterator[str]:
    """The JSON document in pieces: for a long recording it may not fit into memory."""
    yield from pieces(_document(report, version, most_rows))
    yield "\n"


def _document(report: Report, version: str, most: int | None) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "trace": TRACE.written(report.trace),
        "analyses": {a.name: _analysis(a, report.outcomes[a.name], most) for a in report.analyses},
        "findings": [finding_document(finding) for finding in report.findings],
        "verdict": vars(report.verdict) if report.verdict else None,
        "scoreboard": vars(report.scoreboard) if report.scoreboard else None,
        "run_time": RUN_TIME.written(report.run_time) if report.run_time else None,
    }


_SELECTION = JsonShape(Selection, "ranges=include exclude_ranges=exclude")
TRACE = JsonShape(
    TraceFacts,
    "path recorder recorder_version export_schema_version duration_ns gpus processes",
    "row_counts run",
    JsonKey("selection", _SELECTION, lambda trace, _: trace.selection),
    "strict peaks warnings",
)
RUN_TIME = JsonShape(RunTime, "*")
FORECAST = JsonShape(
    Forecast,
    "saved_per_step_ns step_ns loop share_of_run_pct speedup_at_most saving is_partial is_mean",
)


def _analysis(analysis: Analysis, outcome: Outcome, most: int | None) -> dict[str, Any]:
    if isinstance(outcome, Skipped):
        return {"status": outcome.status, "reason": outcome.reason, "remedy": outcome.remedy}
    return {
        "status": "ok",
        "title": analysis.title,
        "question": analysis.question,
        **tables_document(analysis.tables, outcome, most),
        "summary": dict(outcome.summary),
        "notes": list(outcome.notes),
    }


def tables_document(specs: Sequence[TableSpec], result: Result, most: int | None) -> dict[str, Any]:
    """The tables, and for each cut table the number of rows left out and their sums."""
    parts = {spec.name: limited(spec, result.tables[spec.name], most) for spec in specs}
    left_out = {name: _left_out(part) for name, part in parts.items() if part.left_out}
    tables = {name: part.table for name, part in parts.items()}
    return {"tables": tables, **({"left_out": left_out} if left_out else {})}


def _left_out(part: LimitedTable) -> dict[str, Any]:
    return {"rows": part.left_out, "kept": part.kept, **part.sums}


def finding_document(ranked: RankedFinding) -> dict[str, Any]:
    """A finding with the time that acting on it can save."""
    forecast = ranked.forecast
    return {
        "analysis": ranked.analysis,
        **finding_fields(ranked.finding, ranked.analysis),
        "forecast": forecast and FORECAST.written(forecast),
    }
