"""A report as data: JSON, version 1, and every row of its tables as CSV.

Names are whole and numbers as computed. Absent values are null, and so are NaN and infinity, which
JSON lacks. A long table is cut to the rows that matter most; `left_out` beside `tables` counts the
other rows and has the sums of their columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from traceview.base.findings import Forecast
from traceview.base.tables import Cell, Table, TableSpec
from traceview.render.base import json_text
from traceview.render.base.json_text import JsonKey, JsonShape, Keys, Schema
from traceview.render.base.safe_text import visible
from traceview.render.document import LimitedTable, limited
from traceview.traces.analyses.base import Analysis, Failed, Result, Skipped
from traceview.traces.analyses.verdict import SCOREBOARD
from traceview.traces.plan import PlanStep, RankedFinding
from traceview.traces.reporting import Report, TraceFacts
from traceview.traces.trace import Selection


def tables_document(specs: Sequence[TableSpec], result: Result, most: int | None) -> dict[str, Any]:
    """The tables, and for each cut table the number of rows left out and their sums."""
    parts = {spec.name: limited(spec, result.tables[spec.name], most) for spec in specs}
    left_out = {name: _left_out(part) for name, part in parts.items() if part.left_out}
    tables = {name: part.table for name, part in parts.items()}
    return {"tables": tables, **({"left_out": left_out} if left_out else {})}


def _left_out(part: LimitedTable) -> dict[str, Any]:
    return {"rows": part.left_out, "kept": part.kept, **part.sums}


def tables_shape(specs: Sequence[TableSpec], optional: Sequence[str] = ()) -> JsonShape:
    """The keys of a `tables_document`, of which `optional` tables may be absent."""

    def tables() -> Schema:
        rows = {spec.name: json_text.many(json_text.row(spec.columns)) for spec in specs}
        return json_text.required(rows, optional)

    def left_out() -> Schema:
        counted = json_text.required({"rows": json_text.WHOLE, "kept": json_text.TEXT})
        return json_text.mapping({**counted, "additionalProperties": json_text.of(float)})

    return JsonShape(
        dict,
        JsonKey("tables", tables, lambda given, _: given["tables"]),
        JsonKey("left_out", left_out, lambda given, _: given.get("left_out"), optional=True),
    )


def _answer(analysis: Analysis) -> JsonShape:
    return JsonShape(
        Result,
        JsonKey("status", lambda: {"const": "ok"}, lambda *_: "ok"),
        JsonKey("title", str, lambda *_: analysis.title),
        JsonKey("question", lambda: {"const": analysis.question}, lambda *_: analysis.question),
        Keys(
            tables_shape(analysis.tables),
            lambda result, most: tables_document(analysis.tables, result, most),
        ),
        "summary notes",
    )


_STATUSES = {"enum": [Skipped.status, Failed.status]}
_SKIPPED = JsonShape(
    Skipped,
    JsonKey("status", lambda: _STATUSES, lambda skipped, _: skipped.status),
    "reason remedy",
)


def _answers(report: Report, most: int | None) -> dict[str, Any]:
    outcomes = ((analysis, report.outcomes[analysis.name]) for analysis in report.analyses)
    return {
        analysis.name: (_SKIPPED if isinstance(outcome, Skipped) else _answer(analysis)).written(
            outcome, most
        )
        for analysis, outcome in outcomes
    }


def _answers_schema() -> Schema:
    from traceview.traces.analyses import ALL

    answers = {
        analysis.name: {
            "description": analysis.question,
            "oneOf": [_answer(analysis).schema(), _SKIPPED.schema()],
        }
        for analysis in ALL
    }
    return {"type": "object", "properties": answers}


Basis = Literal["replay", "bound"]


def _saving_ns(forecast: Forecast, ranked: RankedFinding) -> int:
    saved = forecast.saved_per_step_ns
    return ranked.finding.time_at_stake_ns if saved is None else saved


_FORECAST = JsonShape(
    Forecast,
    "saved_per_step_ns step_ns loop share_of_run_pct speedup_at_most saving is_partial is_mean",
    JsonKey("saving_ns", int, lambda forecast, ranked: _saving_ns(forecast, ranked)),
    "error_ns",
    JsonKey("basis", Basis, lambda forecast, _: "bound" if forecast.error_ns is None else "replay"),
    saving_ns="of a step, or of the steady time where saved_per_step_ns is null",
    error_ns="of saving_ns (±); null where nothing was replayed",
    basis="replay: the recording was replayed with the remedy; bound: the time that is lost",
)
RANKED_FINDING = JsonShape(
    RankedFinding,
    "analysis",
    Keys(json_text.FINDING, lambda ranked, _: ranked.finding),
    json_text.object_of("forecast", _FORECAST),
    context=lambda ranked, _: ranked,
)
"""A finding with the time that acting on it can save."""
_TRACE = JsonShape(
    TraceFacts,
    "path recorder recorder_version export_schema_version duration_ns gpus processes",
    "row_counts run",
    JsonKey(
        "selection",
        JsonShape(Selection, "ranges=include exclude_ranges=exclude"),
        lambda trace, _: trace.selection,
    ),
    "strict peaks warnings",
)
REPORT = JsonShape(
    Report,
    JsonKey("trace", _TRACE, lambda report, _: report.trace),
    JsonKey("analyses", _answers_schema, _answers),
    json_text.items_of("findings", RANKED_FINDING),
    json_text.items_of(
        "plan", JsonShape(PlanStep, "finding step_before_ns step_after_ns error_ns wins_now")
    ),
    "verdict",
    JsonKey(
        "scoreboard",
        lambda: json_text.maybe(json_text.row(SCOREBOARD)),
        lambda report, _: vars(report.scoreboard) if report.scoreboard else None,
    ),
    "run_time",
    context=lambda _, limits: limits[0],
)


# The tables of a report as CSV, one file per table, with every row.
#
# A spreadsheet evaluates a text cell that begins like a formula, and the traced program chose the
# names in a trace: such a cell gets an apostrophe in front. Control characters are escaped.

_LONGEST = 32_000
"""Spreadsheets cut a cell at 32,767 characters."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
_ROWS_AT_ONCE = 50_000


def csv_tables(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    """File names, such as `gpu-idle.causes.csv`, each with its text in pieces."""
    if report.scoreboard:
        row = Table.from_rows(SCOREBOARD, [dict(vars(report.scoreboard))])
        yield "scoreboard.csv", csv_text(row)
    yield "findings.csv", csv_text(report.findings_table())
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if isinstance(outcome, Result):
            for spec in analysis.tables:
                yield f"{analysis.name}.{spec.name}.csv", csv_text(outcome.tables[spec.name])


def csv_text(table: Table) -> Iterator[str]:
    """A table with its column names first; absent values are empty."""
    yield _lines([[column.name for column in table.columns]])
    for first in range(0, len(table), _ROWS_AT_ONCE):
        part = table.take(np.arange(first, min(first + _ROWS_AT_ONCE, len(table))))
        columns = [_cells(part, column.name) for column in table.columns]
        yield _lines(zip(*columns, strict=True))


def _cells(table: Table, name: str) -> Sequence[Cell | str]:
    known: dict[str, str] = {}
    return [_cell(value, known) for value in table.cells(name)]


def _cell(value: Cell, known: dict[str, str]) -> Cell | str:
    if isinstance(value, bytes):
        return len(value)
    if not isinstance(value, str):
        return "" if value is None or value != value else value
    if value not in known:
        known[value] = safe_cell(value)
    return known[value]


def safe_cell(text: str) -> str:
    """The text on one line, changed so that no spreadsheet takes it for a formula."""
    shown = visible(text, _LONGEST)
    return f"'{shown}" if text.startswith(_FORMULA) else shown


def _lines(rows: Iterable[Iterable[Cell | str]]) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()
