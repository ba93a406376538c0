"""Tried remedies, and the table of all trials, for a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

from rich.console import RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.tables import TableSpec, column_list
from traceview.render.base.json_text import SCHEMA_VERSION
from traceview.render.base.safe_text import visible
from traceview.render.base.text import cells, drawn, fitting, grid, heading, note_block, table_of
from traceview.trials.tryout.answer import TryReport
from traceview.trials.tryout.ledger import Row
from traceview.trials.tryout.planned import Planned, Said
from traceview.trials.tryout.verdict import StepDifference, Trial

_LEAST_TEXT, _LONGEST_REASON = 12, 300
_STYLES = {"keep": "bold green", "slower": "red", "changes results": "red", "failed": "red"}
_SAVING = {"at-most": "at most", "about": "about", "at-least": "at least"}
_PLANNED = TableSpec(
    "planned",
    "one row per remedy",
    column_list("""
        remedy text: name
        forecast text?: what the report says that it saves
        change sentence: what it does
        may_change sentence: results that it may change
    """),
    "remedy forecast change may_change",
)
_ROWS = TableSpec(
    "tried",
    "one row per trial",
    column_list("""
        program text: folder and script
        remedy text: name
        said text?: forecast, share of the step
        measured text?: share of the step that was saved
        off text?: forecast − measured
        verdict text: outcome
    """),
    "program remedy said measured off verdict",
)


def render_try(report: TryReport, *, width: int = 80, color: bool = False) -> str:
    """The outcome, or without trials the plan, in lines of at most `width` cells."""
    blocks = _outcome(report) if report.trials else _plan(report, width)
    return drawn(blocks, width, color)


def _plan(report: TryReport, width: int) -> list[RenderableType]:
    title = heading("Remedies to try", visible(report.program.script.name))
    if not report.planned:
        text = "No finding asks for a mechanical remedy. --remedy NAME tries one all the same."
        return [title, Text(text)]
    table = table_of(
        _PLANNED,
        report.planned,
        remedy="name",
        forecast=lambda each: _share(each.said),
        change="does",
        may_change=lambda each: each.remedies[0].may_change,
    )
    limits = report.limits
    text = (
        f"Each runs up to {limits.runs} times for {limits.steps} timed steps, in turns with the "
        "unchanged program, in a scratch copy of this folder."
    )
    return [title, cells(fitting(_PLANNED, table, width, _LEAST_TEXT)), note_block("", text, "dim")]


def _outcome(report: TryReport) -> list[RenderableType]:
    title = heading("Remedies tried", visible(report.program.script.name))
    base = report.base_ns or 0.0
    head = (
        f"{visible(report.device)} · {units.duration(base)} per step without a remedy · "
        f"{units.counted(report.runs, 'run')}"
    )
    trials = [*report.trials, *([report.together] if report.together else [])]
    rows = grid("", "", "")
    for trial in trials:
        style = _STYLES.get(trial.outcome, "")
        name = visible(trial.planned.name)
        rows.add_row(Text(trial.outcome, style), Text(name), Text(_sentence(trial, base)))
    blocks: list[RenderableType] = [title, Text(head), rows]
    blocks += [note_block("Note: ", f"{note}.") for note in report.notes]
    by_hand = report.patch().by_hand
    blocks += [note_block(f"{name}, by hand: ", f"{visible(how)}.") for name, how in by_hand]
    return blocks


def _share(said: Said | None) -> str | None:
    return f"{_SAVING[said.saving]} {units.percent(said.share_pct)}" if said else None


def _forecast(planned: Planned, base_ns: float) -> str | None:
    """The forecast in terms of the measured step."""
    if planned.said is None:
        return None
    said = planned.said
    error = None if said.error_pct is None else base_ns * said.error_pct / 100
    saved_ns = base_ns * said.share_pct / 100
    lead = "" if units.is_hidden(saved_ns, error) else f"{_SAVING[said.saving]} "
    return f"{lead}{units.with_error(saved_ns, error)}"


def _sentence(trial: Trial, base_ns: float) -> str:
    """The difference with its interval, the forecast, and what came of the results."""
    parts = []
    if m := trial.measured:
        share = units.percent_difference(m.delta_pct)
        parts.append(f"{units.difference(m.delta_ns)} ({share}{_interval(m)})")
    if said := _forecast(trial.planned, base_ns):
        parts.append(f"forecast {said}")
    if trial.outcome == "undecided" and not trial.reason:
        more = trial.measured.more_runs if trial.measured else None
        parts.append(units.counted(more, "more run") if more else "more than 200 runs")
    if trial.results and trial.outcome != "changes results":
        parts.append(f"results {trial.results}")
    if trial.reason:
        parts.append(visible(trial.reason, _LONGEST_REASON))
    return " · ".join(parts)


def _interval(m: StepDifference) -> str:
    if m.low_ns is None or m.high_ns is None:
        return ""
    return f"; {units.difference(m.low_ns)} to {units.difference(m.high_ns)}"


def render_rows_json(rows: Sequence[Row], version: str) -> str:
    """Rows of the local table as a JSON document."""
    head = {"schema_version": SCHEMA_VERSION, "traceview_version": version}
    document = {**head, "tried": [vars(row) for row in rows]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def render_accuracy(rows: Sequence[Row], *, width: int = 80, color: bool = False) -> str:
    """Forecasts beside measurements, and their median error."""
    rows = [row for row in rows if row.saved_pct is not None]
    if not rows:
        text = "Nothing was tried on this machine yet: traceview try SCRIPT"
        return drawn([Text(text)], width, color)
    table = table_of(
        _ROWS,
        rows,
        program=lambda row: visible(row.program),
        said=lambda row: _said(row),
        measured=lambda row: units.percent_difference(row.saved_pct),
        off=lambda row: units.percent_difference(row.off_pct),
        verdict="outcome",
    )
    off = [abs(row.off_pct) for row in rows if row.off_pct is not None]
    blocks: list[RenderableType] = [heading("Forecasts and measurements", "share of the step")]
    blocks.append(cells(fitting(_ROWS, table, width, _LEAST_TEXT)))
    if off:
        text = f"{units.counted(len(off), 'forecast')}, median error {median(off):.1f} % of a step"
        blocks.append(Text(text, "bold"))
    return drawn(blocks, width, color)


def _said(row: Row) -> str | None:
    if row.said_pct is None:
        return None
    error = f" ± {row.said_error_pct:.1f}" if row.said_error_pct else ""
    return f"{_SAVING.get(row.saving, '')} {row.said_pct:.1f}{error} %".strip()
