"""A report as one self-contained HTML page: no network, no other file.

Tables and figures are there without scripts; the script of `render/script` adds to them.
"""

from __future__ import annotations

from pathlib import PurePath

from traceview.render.base.page import MOST_ROWS, STYLES, Style, key, rendered
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.views import FindingEntry, finding_view, section_view
from traceview.render.timeline.section import timeline_view
from traceview.report import Report


def render_html(report: Report, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The page, with at most so many rows of each table; all if `most_rows` is None.

    `version` is that of traceview, for the footer.
    """
    trace = report.trace
    return rendered(
        "report.html",
        Style(STYLES),
        verdict=report.verdict.text if report.verdict else "",
        nothing_found=nothing_found(report),
        title=PurePath(trace.path).name,
        facts=header_facts(trace),
        run=sorted(trace.run.items()),
        warnings=trace.warnings,
        findings=_findings(report),
        sections=[section_view(a, report.outcomes[a.name], most_rows) for a in report.analyses],
        timeline=timeline_view(report.recording),
        version=version,
    )


def _findings(report: Report) -> list[FindingEntry]:
    titles = {analysis.name: analysis.title for analysis in report.analyses}
    return [
        finding_view(
            each.finding, report.whole, titles[each.analysis], key(each.analysis), each.forecast
        )
        for each in report.findings
    ]
