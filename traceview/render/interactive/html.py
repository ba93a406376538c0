"""Notebook display of the public types: parts of the HTML report, without scripts or links.

The page's style is nested in the one element of the value, so that it does not affect the rest of
the notebook.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from pathlib import PurePath

from traceview.base import units
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.base.tables import Table
from traceview.render.base.page import STYLES, Style, TableView, rendered, table_view
from traceview.render.comparison.html import compared_view
from traceview.render.interactive.text import Displayable, as_shown, shape
from traceview.render.ranks import document as job_header
from traceview.render.ranks.document import ranked_findings
from traceview.render.report.document import header_facts, nothing_found
from traceview.render.report.html import SectionView, finding_view, section_view
from traceview.traces.analyses.base import Result, Skipped
from traceview.traces.comparison.comparison import RunComparison
from traceview.traces.plan import RankedFinding
from traceview.traces.ranks.job import JobReport
from traceview.traces.ranks.tables import TABLES
from traceview.traces.reporting import Report, TraceFacts, facts_of
from traceview.traces.trace import Trace

MOST_ROWS = 20


@record
class _Header:
    title: str
    facts: list[tuple[str, str]]
    run: list[tuple[str, str]]
    warnings: tuple[str, ...]


@singledispatch
def snippet(value: Displayable) -> str:
    """A value as one HTML element."""
    raise TypeError(f"{type(value).__name__} has no HTML")


@snippet.register
def _(value: Trace) -> str:
    return _drawn(header=_header(facts_of(value)))


@snippet.register
def _(value: Report) -> str:
    titles = {analysis.name: analysis.title for analysis in value.analyses}
    return _drawn(
        header=_header(value.trace),
        verdict=value.verdict.text if value.verdict else "",
        findings=[finding_view(f, titles[f.analysis]) for f in value.findings],
        nothing_found=nothing_found(value),
        sections=[section_view(a, value.outcomes[a.name], MOST_ROWS) for a in value.analyses],
    )


@snippet.register
def _(value: Result) -> str:
    if value.analysis is None:
        views = [_table_view(table, name) for name, table in value.tables.items()]
        return _drawn(sections=[SectionView("", "", "", tables=tuple(views), notes=value.notes)])
    return _drawn(sections=[section_view(value.analysis, value, MOST_ROWS)])


@snippet.register
def _(value: Skipped) -> str:
    return _drawn(sections=[SectionView("", "", "", skipped=value)])


@snippet.register
def _(value: Table) -> str:
    return _drawn(table=_table_view(value, shape(value)))


@snippet.register
def _(value: Finding) -> str:
    return _drawn(findings=[finding_view(value)])


@snippet.register
def _(value: RankedFinding) -> str:
    return _drawn(findings=[finding_view(value)])


@snippet.register
def _(value: RunComparison) -> str:
    return _drawn(comparison=compared_view(value))


@snippet.register
def _(value: JobReport) -> str:
    return _drawn(
        header=_Header(
            job_header.job_title(value),
            job_header.job_facts(value),
            [],
            tuple(job_header.warnings(value)),
        ),
        verdict=value.verdict.text,
        findings=[finding_view(each, units.stem(each.analysis)) for each in ranked_findings(value)],
        nothing_found=job_header.nothing_found(value),
        sections=[
            SectionView(
                "",
                units.stem(spec.name).capitalize(),
                "",
                tables=(table_view(spec, table, MOST_ROWS),),
            )
            for spec, table in value.result.shown(TABLES)
            if len(table)
        ],
    )


def _header(facts: TraceFacts) -> _Header:
    title = PurePath(facts.path).name
    return _Header(title, header_facts(facts), sorted(facts.run.items()), facts.warnings)


def _table_view(table: Table, name: str) -> TableView:
    spec, head = as_shown(table, MOST_ROWS)
    left_out = len(table) - len(head)
    return replace(table_view(spec, head), name=name, left_out=left_out, kept="the first")


def _drawn(**parts: object) -> str:
    absent = {
        "header": None,
        "verdict": "",
        "findings": None,
        "nothing_found": "",
        "sections": (),
        "table": None,
        "comparison": None,
    }
    content = {**absent, **parts, "whole": ".to_pandas()"}
    return rendered(
        "snippet.html",
        Style((*STYLES, "comparison.css", "snippet.css"), within=".traceview"),
        **content,
    )
