"""A report as one self-contained HTML page: no network, no other file.

Tables and figures need no scripts; the script in `render/script` adds interaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePath

from traceview.render.base.page import STYLES, Style, compile_templates, key, rendered_pieces
from traceview.render.base.table_view import MOST_ROWS
from traceview.render.report.evidence import evidence_view, marked_rows
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.kernel_code import listings
from traceview.render.report.scoreboard import tiles
from traceview.render.report.time_bar import time_bar
from traceview.render.report.views import FindingEntry, finding_view, section_view
from traceview.render.timeline.section import timeline_view
from traceview.report import Report

_PAGE = "report.html"
_PARTS = ("page.html", "report_parts.html", "tables.html", "ptx_code.html", "timeline.html")


def prepare() -> None:
    """Compile the templates ahead of the first page."""
    compile_templates(_PAGE, *_PARTS)


def render_html(report: Report, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The page, with at most `most_rows` rows of each table, all if that is None.

    `version` is traceview's own, for the footer.
    """
    return "".join(html_pieces(report, version, most_rows))


def html_pieces(report: Report, version: str, most_rows: int | None) -> Iterator[str]:
    """The page of `render_html` in pieces, to be written in order."""
    trace, marked = report.trace, marked_rows(report)
    with ThreadPoolExecutor(1) as pool:
        # numpy and zlib release the GIL, so the tables are built meanwhile.
        timeline = pool.submit(timeline_view, report.recording)
        sections = [
            section_view(a, report.outcomes[a.name], most_rows, marked) for a in report.analyses
        ]
        findings = _findings(report)
    return rendered_pieces(
        _PAGE,
        Style(STYLES),
        verdict=report.verdict.text if report.verdict else "",
        tiles=tiles(report.scoreboard) if report.scoreboard else (),
        time=time_bar(report.run_time) if report.run_time else None,
        nothing_found=nothing_found(report),
        title=PurePath(trace.path).name,
        facts=header_facts(trace),
        run=sorted(trace.run.items()),
        warnings=trace.warnings,
        findings=findings,
        sections=[section for section in sections if not section.skipped],
        skipped=[section for section in sections if section.skipped],
        timeline=timeline.result(),
        version=version,
    )


def _findings(report: Report) -> list[FindingEntry]:
    code = listings(report)
    titles = {analysis.name: analysis.title for analysis in report.analyses}
    return [
        replace(
            finding_view(each.finding, titles[each.analysis], key(each.analysis), each.forecast),
            key=f"finding-{number}",
            evidence=evidence_view(report, each, code),
        )
        for number, each in enumerate(report.findings, 1)
    ]
