"""A report as text for a terminal or a pipe.

No text is taken as markup, so a name with brackets stays as it is.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import PurePath

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import Analysis, Result, Skipped, TableSpec
from traceview.ranking import Outcome
from traceview.records import record
from traceview.render.base.row_limit import MOST_ROWS as JSON_ROWS
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import (
    SENTENCE,
    Prose,
    drawn,
    grid,
    heading,
    note_block,
    sentence,
)
from traceview.render.report.finding_text import WIDEST, FindingText
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.table_text import TextOptions, single_ids, table_lines
from traceview.report import Report
from traceview.tables import Table

MOST_FINDINGS = 10


def render_text(
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    links: bool = False,
    options: TextOptions = TextOptions(),  # noqa: B008 - frozen
) -> str:
    """The whole report in lines of at most `width` cells; with ANSI styles if `color`.

    With `links`, a source line of a finding is a link (OSC 8) where its file is on this machine.
    """
    page = _Page(width, single_ids(report.trace), options)
    sections = [_answer(a, report.outcomes[a.name], page) for a in report.analyses]
    return drawn([*_opening(report, page, links), *sections], width, color)


@record
class _Page:
    """Settings that all tables of a report share."""

    width: int
    single: frozenset[str]
    options: TextOptions


def _opening(report: Report, page: _Page, links: bool) -> list[RenderableType]:
    return [*_verdict(report), _header(report), _findings(report, page, links)]


def _verdict(report: Report) -> list[RenderableType]:
    return [Prose(visible(report.verdict.text, SENTENCE))] if report.verdict else []


def _header(report: Report) -> RenderableType:
    trace = report.trace
    rows = grid("", "")
    for name, value in header_facts(trace):
        rows.add_row(Text(name, "dim"), sentence(value))
    title = Text(visible(PurePath(trace.path).name), "bold")
    warnings = [note_block("Warning: ", text, "yellow") for text in trace.warnings]
    return Group(title, rows, *warnings)


def _findings(report: Report, page: _Page, links: bool) -> RenderableType:
    head = heading("What to do first")
    if not report.findings:
        return Group(head, Text(nothing_found(report)))
    shown = report.findings[:MOST_FINDINGS]
    texts = (FindingText(each, min(page.width, WIDEST), links) for each in shown)
    lines = (line for text in texts for line in text.lines())
    return Group(head, *lines, *_rest(len(report.findings) - MOST_FINDINGS))


def _answer(analysis: Analysis, outcome: Outcome, page: _Page) -> RenderableType:
    head = heading(analysis.title, analysis.name)
    question = Text(analysis.question, "italic")
    if isinstance(outcome, Skipped):
        return Group(head, question, *_skipped(outcome))
    shown = outcome.shown(analysis.tables)
    tables = [table_block(*each, page.width, page.single, page.options) for each in shown]
    notes = [note_block("Note: ", note, "dim") for note in outcome.notes]
    return Group(head, question, *_summary(outcome), *tables, *notes)


def _skipped(skipped: Skipped) -> list[RenderableType]:
    return [note_block("Not answered: ", skipped.reason), note_block("→ ", skipped.remedy)]


def _summary(result: Result) -> list[RenderableType]:
    figures = [
        f"{units.stem(name)} {visible(units.quantity(name, value))}"
        for name, value in result.summary.items()
    ]
    return [Prose(" · ".join(figures))] if figures else []


def table_block(
    spec: TableSpec, table: Table, width: int, single: Set[str], options: TextOptions
) -> RenderableType:
    """A table below its name and meaning; for a detail table, only its number of rows.

    `single` names columns of ids that have one value in the whole recording.
    """
    caption = Text.assemble("\n", (units.stem(spec.name), "bold"), (f": {spec.meaning}", "dim"))
    if not len(table):
        return Group(caption, Text("none"))
    if spec.detail:
        return Group(caption, Text(_elsewhere(len(table))))
    rows = table_lines(spec, table, width, single, options)
    return Group(caption, *rows, *_rest(len(table) - options.rows, len(table)))


def _elsewhere(rows: int) -> str:
    counted = units.counted(rows, "row")
    if rows > JSON_ROWS:
        return f"{counted}: {units.count(JSON_ROWS)} in --json, all with --json --all-rows"
    return f"{counted}, shown by --html and --json"


def _rest(rows: int, of: int = 0) -> list[RenderableType]:
    whole = "--json --all-rows" if of > JSON_ROWS else "--json"
    return [Text(f"… and {units.count(rows)} more ({whole} has all)", "dim")] if rows > 0 else []
