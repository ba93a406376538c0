"""The view of a report for templates: its findings and sections, with every number as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.findings import Finding, Forecast
from traceview.ranking import Outcome
from traceview.records import record
from traceview.render.base.page import key
from traceview.render.base.table_view import TableView, table_view
from traceview.render.charts.layout import layout
from traceview.render.charts.svg.draw import draw
from traceview.render.report.evidence import EvidenceView, table_key
from traceview.render.report.saving import Claim, claim
from traceview.tables import Table

MarkedRows = Mapping[tuple[str, str], Sequence[int]]
"""Rows to mark in tables, by the names of analysis and table."""


@record
class ChartView:
    """A chart as HTML and SVG; `left_out` counts the rows that it does not show."""

    title: str
    drawn: Markup
    left_out: int


@record
class FindingEntry:
    """A finding; `section` is the id of its analysis on the page, empty if there is none.

    `key` is the finding's own id.
    """

    severity: str
    claim: Claim | None
    message: str
    action: str
    title: str = ""
    section: str = ""
    key: str = ""
    evidence: EvidenceView | None = None


@record
class SectionView:
    """One analysis; `skipped` is None if it was answered. `key` is its id on the page."""

    key: str
    title: str
    question: str
    figures: tuple[tuple[str, str], ...] = ()
    charts: tuple[ChartView, ...] = ()
    tables: tuple[TableView, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: Skipped | None = None


def finding_view(
    finding: Finding,
    title: str = "",
    section: str = "",
    forecast: Forecast | None = None,
) -> FindingEntry:
    """A finding with its possible saving."""
    return FindingEntry(
        severity=finding.severity,
        claim=claim(finding, forecast),
        message=finding.message,
        action=finding.action,
        title=title,
        section=section,
    )


def section_view(
    analysis: Analysis, outcome: Outcome, most: int | None, marked: MarkedRows | None = None
) -> SectionView:
    """One analysis with at most `most` rows of each table, all if that is None.

    On a page, `marked` has the rows that findings link to, and elements have ids.
    """
    names = (key(analysis.name), analysis.title, analysis.question)
    if isinstance(outcome, Skipped):
        return SectionView(*names, skipped=outcome)
    return SectionView(
        *names,
        figures=tuple(
            (units.stem(name), units.quantity(name, value))
            for name, value in outcome.summary.items()
        ),
        charts=_charts(analysis, outcome),
        tables=tuple(
            _table(analysis.name, spec, table, most, marked)
            for spec, table in outcome.shown(analysis.tables)
        ),
        notes=outcome.notes,
    )


def _table(
    analysis: str, spec: TableSpec, table: Table, most: int | None, marked: MarkedRows | None
) -> TableView:
    if marked is None:
        return table_view(spec, table, most)
    rows = marked.get((analysis, spec.name), ())
    return table_view(spec, table, most, table_key(analysis, spec.name), rows)


def _charts(analysis: Analysis, result: Result) -> tuple[ChartView, ...]:
    views = (_chart(chart, result.tables[chart.table]) for chart in analysis.charts)
    return tuple(view for view in views if view)


def _chart(chart: Chart, table: Table) -> ChartView | None:
    drawing = layout(chart, table)
    if drawing is None:
        return None
    return ChartView(chart.title, draw(drawing, chart.title), drawing.left_out)
