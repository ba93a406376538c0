"""A report as one self-contained HTML page; notebooks and jobs use the views of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import PurePath
from urllib.parse import quote

from markupsafe import Markup

from traceview.base import units
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.base.tables import Table, TableSpec
from traceview.render.base import page
from traceview.render.base.code import color_class
from traceview.render.base.page import MOST_ROWS, key
from traceview.render.charts.layout import layout
from traceview.render.charts.marks import NEUTRAL
from traceview.render.charts.svg import draw, rect, svg
from traceview.render.report import document
from traceview.render.report.document import claim
from traceview.render.report.evidence import (
    EvidenceView,
    evidence_view,
    listings,
    marked_rows,
    table_key,
)
from traceview.render.report.plan import label, plan_text, telling
from traceview.render.timeline import timeline_view
from traceview.traces.analyses.base import Analysis, Chart, Skipped
from traceview.traces.analyses.verdict.scoreboard import RunTime, TimePart
from traceview.traces.analyses.verdict.verdict import Verdict
from traceview.traces.plan import RankedFinding
from traceview.traces.ranking import Outcome
from traceview.traces.reporting import Report

_HEIGHT_PX = 36.0
_LEAST_PCT = 5.0
"""Least percentage to be named in the legend; a smaller part has only a tooltip."""

_PATTERN = Markup(
    '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="2.5" height="6" class="hatch"/></pattern></defs>'
)


@record
class LegendEntry:
    """A part of the bar in words. `style` is the CSS class of its colour."""

    name: str
    style: str
    share: str


@record
class TimeBarView:
    """The bar, its named busy and idle parts, and the time that it is of."""

    drawn: Markup
    busy: tuple[LegendEntry, ...]
    idle: tuple[LegendEntry, ...]
    busy_pct: str
    idle_pct: str
    of: str


def time_bar(time: RunTime, verdict: Verdict | None) -> TimeBarView:
    """The bar of one GPU's steady time; without steps none of it is warm-up."""
    kinds = {kind: [part for part in time.parts if part.kind == kind] for kind in ("busy", "idle")}
    sums = {kind: sum(part.time_ns for part in parts) for kind, parts in kinds.items()}
    gpu = f" of GPU {time.device_id}" if time.devices > 1 else ""
    warm = " after warm-up" if verdict and verdict.steps else ""
    return TimeBarView(
        drawn=_bar(time),
        busy=tuple(_entries(kinds["busy"], time.steady_ns)),
        idle=tuple(_entries(kinds["idle"], time.steady_ns)),
        busy_pct=_share(sums["busy"], time.steady_ns),
        idle_pct=_share(sums["idle"], time.steady_ns),
        of=f"{units.duration(time.steady_ns)}{gpu}{warm}",
    )


def _bar(time: RunTime) -> Markup:
    whole = max(time.steady_ns, 1)
    marks, start = [_PATTERN], 0.0
    for part in time.parts:
        width = part.time_ns / whole
        idle = "idle: " if part.kind == "idle" else ""
        tooltip = (
            f"{idle}{part.name}: {units.duration(part.time_ns)}, {_share(part.time_ns, whole)}"
        )
        marks.append(rect(start, 0, width, _HEIGHT_PX, f"part {_style(part)}", tooltip))
        if part.kind == "idle":
            marks.append(rect(start, 0, width, _HEIGHT_PX, "hatched", tooltip))
        start += width
    return svg(_HEIGHT_PX, marks, "time-bar")


def _style(part: TimePart) -> str:
    return color_class(part.name) or color_class(f"python-{part.name}") or NEUTRAL


def _share(part_ns: int, whole_ns: int) -> str:
    return units.percent(100.0 * part_ns / max(whole_ns, 1))


def _entries(parts: Sequence[TimePart], whole_ns: int) -> Iterator[LegendEntry]:
    for part in parts:
        if part.time_ns >= max(_LEAST_PCT / 100.0 * whole_ns, 1):
            share = _share(part.time_ns, whole_ns)
            yield LegendEntry(part.name, _style(part), share)


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

    `key` is the finding's own id, `brief` the action in the words of the plan, instead of the whole
    one as long as the card is closed.
    """

    severity: str
    claim: document.Claim | None
    message: str
    action: str
    title: str = ""
    section: str = ""
    key: str = ""
    evidence: EvidenceView | None = None
    brief: str = ""


@record
class SectionView:
    """One analysis; `skipped` is None if it was answered. `key` is its id on the page."""

    key: str
    title: str
    question: str
    figures: tuple[tuple[str, str], ...] = ()
    charts: tuple[ChartView, ...] = ()
    tables: tuple[page.TableView, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: Skipped | None = None


def finding_view(of: Finding | RankedFinding, title: str = "", section: str = "") -> FindingEntry:
    """A finding with its possible saving."""
    finding = of if isinstance(of, Finding) else of.finding
    return FindingEntry(
        severity=finding.severity,
        claim=claim(of) if isinstance(of, Finding) else document.ranked_claim(of),
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
    views = (_chart(chart, outcome.tables[chart.table]) for chart in analysis.charts)
    return SectionView(
        *names,
        figures=tuple(
            (units.stem(name), units.quantity(name, value))
            for name, value in outcome.summary.items()
        ),
        charts=tuple(view for view in views if view),
        tables=tuple(
            _table(analysis.name, spec, table, most, marked)
            for spec, table in outcome.shown(analysis.tables)
        ),
        notes=outcome.notes,
    )


def _table(
    analysis: str, spec: TableSpec, table: Table, most: int | None, marked: MarkedRows | None
) -> page.TableView:
    if marked is None:
        return page.table_view(spec, table, most)
    rows = marked.get((analysis, spec.name), ())
    moments = _moments(spec, table)
    return page.table_view(spec, table, most, table_key(analysis, spec.name), rows, moments=moments)


_SPANS = (("start_ns", "duration_ns"), ("cpu_start_ns", "cpu_ns"))


def _moments(spec: TableSpec, table: Table) -> Sequence[str | None]:
    """What the rows of a table show in the timeline, as fragments: a window, or a kernel's name."""
    names = {column.name for column in spec.columns}
    for start, duration in _SPANS:
        if {start, duration} <= names:
            spans = zip(table.cells(start), table.cells(duration), strict=True)
            return [
                f"at={first}-{int(first) + int(length)}"
                if isinstance(first, int) and isinstance(length, int)
                else None
                for first, length in spans
            ]
    if spec.name == "kernels" and "label" in names:
        return [
            f"name={quote(label)}" if label else None for label in table.texts("label").decode()
        ]
    return ()


def _chart(chart: Chart, table: Table) -> ChartView | None:
    drawing = layout(chart, table)
    if drawing is None:
        return None
    return ChartView(chart.title, draw(drawing, chart.title), drawing.left_out)


FIRST_CARDS = 3
"""Most findings on the first screen. The sections they lead to are open, all others folded."""
_MOST_WORDS = 98
"""Most words of verdict, plan and cards: some 150 in sight with labels, buttons and amounts."""
_WORD = re.compile(r"[^\W_]\S*")
_PAGE = "report.html"
_PARTS = ("page.html", "report_parts.html", "tables.html", "ptx_code.html", "timeline.html")


def prepare() -> None:
    """Compile the templates ahead of the first page."""
    page.compile_templates(_PAGE, *_PARTS)


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
    verdict = report.verdict.text if report.verdict else ""
    board, time = report.scoreboard, report.run_time
    # The parts of first calls, or of work that was not recorded, are of no whole.
    has_shares = board is not None and board.gpu_busy_pct is not None
    plan = plan_text(report, FIRST_CARDS)
    first = _first_cards(findings, f"{verdict} {plan}")
    return page.rendered_pieces(
        _PAGE,
        page.Style((*page.STYLES, "rail.css")),
        page.TIMELINE,
        page.SCRIPT,
        verdict=verdict,
        shares=report.verdict.shares_text if report.verdict else "",
        tiles=document.tiles(board) if board else (),
        time=time_bar(time, report.verdict) if time and has_shares else None,
        nothing_found=document.nothing_found(report),
        title=PurePath(trace.path).name,
        facts=document.header_facts(trace),
        run=sorted(trace.run.items()),
        warnings=document.warnings(report),
        plan=plan,
        whole_plan=plan_text(report) if len(telling(report.plan)) > FIRST_CARDS else "",
        findings=[*first, *findings[len(first) :]],
        first=len(first),
        linked={each.section for each in first if each.claim},
        sections=[section for section in sections if not section.skipped],
        skipped=[section for section in sections if section.skipped],
        timeline=timeline.result(),
        version=version,
    )


def _first_cards(findings: Sequence[FindingEntry], lead: str) -> list[FindingEntry]:
    """The findings on the first screen, as many as words allow, and one at least.

    Notes, and those that claim no saving, are no cards: one of them stands alone only.
    """
    claims = takewhile(lambda each: each.claim and each.severity != "info", findings)
    cards = list(islice(claims, FIRST_CARDS))
    while len(cards) > 1:
        text = " ".join((lead, *map(_in_sight, cards)))
        if len(_WORD.findall(text)) <= _MOST_WORDS:
            return cards
        cards.pop()
    return list(findings[:1])


def _in_sight(card: FindingEntry) -> str:
    """What a closed card shows, without the severity, the amount and the buttons."""
    source = card.evidence.source if card.evidence else None
    lines = [line.text for line in source.code.lines if line.mark] if source else []
    said = [part for part, longer in page.gist(card.message) if not longer]
    saving = card.claim.brief() if card.claim else ""
    return " ".join((saving, *said, card.brief or card.action, *lines))


def _findings(report: Report) -> list[FindingEntry]:
    code = listings(report)
    titles = {analysis.name: analysis.title for analysis in report.analyses}
    return [
        replace(
            finding_view(each, titles[each.analysis], key(each.analysis)),
            key=f"finding-{number}",
            evidence=evidence_view(report, each, code),
            brief=_brief(each),
        )
        for number, each in enumerate(report.findings, 1)
    ]


def _brief(ranked: RankedFinding) -> str:
    """The action as the plan says it; empty where that is only what the finding is about."""
    words = label(ranked.finding) if document.ranked_claim(ranked) else ""
    return "" if words.startswith("change ") else f"{words[:1].upper()}{words[1:]}"
