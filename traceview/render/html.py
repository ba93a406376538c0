"""A report as one HTML page that needs nothing else: no network, no scripts, no other file.

This module says what stands on the page, `report.html` where, `report.css` how it looks. The
template escapes every text; what is drawn here is the only markup that it takes as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.render.drawing import worked_out
from traceview.render.facts import header_facts
from traceview.render.names import cells_of, visible
from traceview.report import RankedFinding, Report
from traceview.tables import Column, Table

MOST_ROWS = 1_000
"""Rows of a table on the page; JSON has all."""

_HERE = Path(__file__).parent
_SHORT = 64
_WHOLE = 4_000


@dataclass(frozen=True)
class Cell:
    """`whole` is there when `text` leaves out the middle of a long name."""

    text: str
    whole: str | None = None


@dataclass(frozen=True)
class Heading:
    name: str
    label: str
    meaning: str
    is_text: bool


@dataclass(frozen=True)
class TableView:
    name: str
    meaning: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int
    detail: bool


@dataclass(frozen=True)
class ChartView:
    title: str
    svg: Markup
    left_out: int


@dataclass(frozen=True)
class FindingView:
    analysis: str
    title: str
    severity: str
    stake: str
    message: str
    action: str


@dataclass(frozen=True)
class Section:
    """One analysis on the page; `skipped` is None if it was answered."""

    key: str
    title: str
    question: str
    figures: tuple[tuple[str, str], ...] = ()
    charts: tuple[ChartView, ...] = ()
    tables: tuple[TableView, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: Skipped | None = None


def render_html(report: Report, version: str) -> str:
    """The page. `version` is traceview's own."""
    trace = report.trace
    return _template().render(
        nothing=report.without_findings,
        title=PurePath(trace.path).name,
        facts=header_facts(trace),
        run=sorted(trace.run.items()),
        warnings=trace.warnings,
        findings=[_finding(report, finding) for finding in report.findings],
        sections=[_section(report, analysis) for analysis in report.analyses],
        style=Markup((_HERE / "report.css").read_text("utf-8")),  # noqa: S704 - our own file
        version=version,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = lambda text: visible(text, _WHOLE)
    environment.filters["count"] = units.count
    return environment.get_template("report.html")


def _finding(report: Report, ranked: RankedFinding) -> FindingView:
    finding = ranked.finding
    stake = finding.time_at_stake_ns
    title = next(a.title for a in report.analyses if a.name == ranked.analysis)
    return FindingView(
        analysis=_key(ranked.analysis),
        title=title,
        severity=finding.severity,
        stake=units.duration(stake) if stake else "",
        message=finding.message,
        action=finding.action,
    )


def _section(report: Report, analysis: Analysis) -> Section:
    outcome = report.outcomes[analysis.name]
    named = (_key(analysis.name), analysis.title, analysis.question)
    if isinstance(outcome, Skipped):
        return Section(*named, skipped=outcome)
    return Section(
        *named,
        figures=_figures(outcome),
        charts=_charts(analysis, outcome),
        tables=tuple(_table(spec, outcome.tables[spec.name]) for spec in analysis.tables),
        notes=outcome.notes,
    )


def _key(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())


def _figures(result: Result) -> tuple[tuple[str, str], ...]:
    return tuple(
        (units.stem(name), units.quantity(name, value)) for name, value in result.summary.items()
    )


def _charts(analysis: Analysis, result: Result) -> tuple[ChartView, ...]:
    views = (
        _chart(chart, result.tables[chart.table], f"{_key(analysis.name)}-{place}")
        for place, chart in enumerate(analysis.charts)
    )
    return tuple(view for view in views if view)


def _chart(chart: Chart, table: Table, key: str) -> ChartView | None:
    drawing = worked_out(chart, table)
    if drawing is None:
        return None
    # Matplotlib takes most of a second to import: only a page that has a chart pays for it.
    from traceview.render.figures import draw

    svg = Markup(draw(drawing, chart.title, key))  # noqa: S704 - matplotlib escapes the texts
    return ChartView(chart.title, svg, drawing.left_out)


def _table(spec: TableSpec, table: Table) -> TableView:
    head = table.take(np.arange(min(len(table), MOST_ROWS)))
    columns = _in_reading_order(spec)
    cells = [_cells(column, head) for column in columns]
    return TableView(
        name=units.stem(spec.name),
        meaning=spec.meaning,
        headings=tuple(_heading(column) for column in columns),
        rows=tuple(zip(*cells, strict=True)),
        left_out=len(table) - len(head),
        detail=spec.detail,
    )


def _in_reading_order(spec: TableSpec) -> list[Column]:
    """The brief columns first: on a small screen the others are a scroll away."""
    brief = [column for name in spec.brief for column in spec.columns if column.name == name]
    return brief + [column for column in spec.columns if column.name not in spec.brief]


def _heading(column: Column) -> Heading:
    return Heading(column.name, units.label(column.name), column.meaning, column.dtype == "text")


def _cells(column: Column, table: Table) -> list[Cell]:
    said = [visible(units.quantity(column.name, v), _WHOLE) for v in table.cells(column.name)]
    short = cells_of(said, _SHORT)
    return [
        Cell(text, None if text == whole else whole)
        for text, whole in zip(short, said, strict=True)
    ]
