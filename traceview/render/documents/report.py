"""The document of a report: verdict, figures, findings, and the tables of each analysis."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.analyses.base import Skipped
from traceview.render.documents.model import Document, Section, Sheet
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.scoreboard import tiles
from traceview.render.report.table_text import single_ids
from traceview.report import Report

_FACTS = ("only ranges", "without ranges", "GPU", "duration", "contains", "recorded by")


def report_document(report: Report) -> Document:
    """A recording's answers. Tables of details are left to the formats that show every table."""
    facts = dict(header_facts(report.trace))
    return Document(
        title=report.trace.path.rpartition("/")[2],
        facts=tuple(facts[name] for name in _FACTS if name in facts),
        headline=report.verdict.text if report.verdict else "",
        tiles=tiles(report.scoreboard) if report.scoreboard else (),
        warnings=tuple(("Warning", text) for text in report.trace.warnings),
        findings=report.findings,
        nothing_found=nothing_found(report),
        sections=tuple(_sections(report)),
    )


def _sections(report: Report) -> Iterator[Section]:
    single = single_ids(report.trace)
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if isinstance(outcome, Skipped):
            yield Section(analysis.title, (outcome,))
            continue
        shown = outcome.shown(analysis.tables)
        sheets = [Sheet(*each, single) for each in shown if len(each[1]) and not each[0].detail]
        if sheets:
            yield Section(f"{analysis.title}: {analysis.question}", tuple(sheets))
