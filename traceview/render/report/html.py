"""A report as one HTML page that needs nothing else: no network, no scripts, no other file.

This module says what stands on the page, `report.html` where, `report.css` how it looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from markupsafe import Markup

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped
from traceview.render.base.page import MOST_ROWS, TableView, key, rendered, table_view
from traceview.render.charts.layout import worked_out
from traceview.render.report.header import header_facts
from traceview.report import RankedFinding, Report
from traceview.tables import Table


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


def render_html(report: Report, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The page. `version` is traceview's own.

    Of each table, at most so many rows; all if `most_rows` is None.
    """
    trace = report.trace
    return rendered(
        "report.html",
        ("report.css",),
        nothing=report.without_findings,
        title=PurePath(trace.path).name,
        facts=header_facts(trace),
        run=sorted(trace.run.items()),
        warnings=trace.warnings,
        findings=[_finding(report, finding) for finding in report.findings],
        sections=[_section(report, analysis, most_rows) for analysis in report.analyses],
        version=version,
    )


def _finding(report: Report, ranked: RankedFinding) -> FindingView:
    finding = ranked.finding
    stake = finding.time_at_stake_ns
    title = next(a.title for a in report.analyses if a.name == ranked.analysis)
    return FindingView(
        analysis=key(ranked.analysis),
        title=title,
        severity=finding.severity,
        stake=units.duration(stake) if stake else "",
        message=finding.message,
        action=finding.action,
    )


def _section(report: Report, analysis: Analysis, most: int | None) -> Section:
    outcome = report.outcomes[analysis.name]
    named = (key(analysis.name), analysis.title, analysis.question)
    if isinstance(outcome, Skipped):
        return Section(*named, skipped=outcome)
    return Section(
        *named,
        figures=_figures(outcome),
        charts=_charts(analysis, outcome),
        tables=tuple(table_view(s, table, most) for s, table in outcome.shown(analysis.tables)),
        notes=outcome.notes,
    )


def _figures(result: Result) -> tuple[tuple[str, str], ...]:
    return tuple(
        (units.stem(name), units.quantity(name, value)) for name, value in result.summary.items()
    )


def _charts(analysis: Analysis, result: Result) -> tuple[ChartView, ...]:
    views = (
        _chart(chart, result.tables[chart.table], f"{key(analysis.name)}-{place}")
        for place, chart in enumerate(analysis.charts)
    )
    return tuple(view for view in views if view)


def _chart(chart: Chart, table: Table, key: str) -> ChartView | None:
    drawing = worked_out(chart, table)
    if drawing is None:
        return None
    # Matplotlib takes most of a second to import: only a page that has a chart pays for it.
    from traceview.render.charts.svg import draw

    svg = Markup(draw(drawing, chart.title, key))  # noqa: S704 - matplotlib escapes the texts
    return ChartView(chart.title, svg, drawing.left_out)
