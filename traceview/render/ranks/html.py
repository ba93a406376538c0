"""A job of many ranks as one self-contained HTML page, with the membership of its groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.ranking import RankedFinding
from traceview.ranks.job import JobReport
from traceview.ranks.process_groups import ProcessGroups, process_groups
from traceview.ranks.tables import TABLES
from traceview.records import record
from traceview.render.base.page import STYLES, Style, key, rendered
from traceview.render.base.safe_text import visible
from traceview.render.base.table_view import MOST_ROWS, TableView, row_id, table_view
from traceview.render.ranks.aligned import aligned_document
from traceview.render.ranks.document import (
    job_facts,
    job_tiles,
    job_title,
    nothing_found,
    ranked_findings,
    remedies,
    warnings,
)
from traceview.render.ranks.heat_map import heat_document
from traceview.render.report.evidence import EvidenceView, evidence_figures, shown_row, source_view
from traceview.render.report.html import FindingEntry, finding_view
from traceview.render.timeline.packing import script_json
from traceview.tables import NULL, Cell, Column, Table

MOST_RANKS, MOST_SHAPES = 64, 24
_COLOURS = 6


@record
class GroupCell:
    """The numbers of a rank's groups within the row, and the CSS class of the cell's colour."""

    text: str
    style: str


@record
class GroupMatrix:
    """One row per shape of group, with a cell for each rank."""

    ranks: tuple[int, ...]
    rows: tuple[tuple[str, tuple[GroupCell, ...]], ...]


def group_matrix(job: JobReport) -> GroupMatrix | None:
    """The matrix of a job; None if all groups consist of all ranks, or if it is too large."""
    if not 1 < len(job.ranks) <= MOST_RANKS:
        return None
    shapes = [(each.label, _sets(job, each)) for each in process_groups(job.ranks, job.matched)]
    if all(len(places) == len(job.ranks) for _, sets in shapes for places in sets):
        return None
    numbers = tuple(rank.name.rank for rank in job.ranks)
    rows = (
        (visible(label, 120), _cells(sets, len(numbers))) for label, sets in shapes[:MOST_SHAPES]
    )
    return GroupMatrix(numbers, tuple(rows))


def _sets(job: JobReport, groups: ProcessGroups) -> list[tuple[int, ...]]:
    """The places of the ranks in each group of one shape, sorted."""
    sets: dict[object, set[int]] = {}
    for place in groups.members:
        each = job.matched[place]
        key = tuple(sorted(each.ranks)) if each.number == NULL else each.number
        sets.setdefault(key, set()).update(each.ranks)
    return sorted(tuple(sorted(places)) for places in sets.values())


def _cells(sets: list[tuple[int, ...]], ranks: int) -> tuple[GroupCell, ...]:
    cells = [GroupCell("", "")] * ranks
    for number, members in enumerate(sets):
        for place in members:
            more = f"{cells[place].text} " if cells[place].text else ""
            cells[place] = GroupCell(f"{more}{number}", f"g-{number % _COLOURS + 1}")
    return tuple(cells)


BUNDLE = "ranks.js"
_OWN = TableSpec(
    "reports of the ranks",
    "one row per rank: what its own report says",
    (
        Column("rank", "int64", "number of the rank"),
        Column("limit", "text", "what limits it"),
        Column("verdict", "text", "its own verdict", prose=True),
        Column("path", "text", "recording"),
    ),
    brief=("rank", "limit", "verdict"),
    detail=True,
    rare=True,
)


@record
class _Page:
    """The tables of a job, and the rows that findings link to."""

    job: JobReport
    most: int | None
    marked: dict[str, list[int]]


def render_html(job: JobReport, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The page, with at most `most_rows` rows of each table, all if that is None.

    `version` is traceview's own, for the footer.
    """
    ranked = ranked_findings(job)
    page = _Page(job, most_rows, _marked(job, ranked))
    return rendered(
        "ranks.html",
        Style((*STYLES, "ranks.css")),
        BUNDLE,
        title=job_title(job),
        facts=job_facts(job),
        verdict=job.verdict.text,
        tiles=job_tiles(job),
        warnings=warnings(job),
        remedies=remedies(job),
        findings=[_finding(page, each, number) for number, each in enumerate(ranked, 1)],
        nothing_found=nothing_found(job),
        heat=_packed(heat_document(job)),
        aligned=_packed(aligned_document(job)),
        matrix=group_matrix(job),
        tables=list(_tables(page)),
        notes=job.result.notes,
        version=version,
    )


def _packed(document: dict[str, object] | None) -> Markup | None:
    # Escaped, so that no text can end the script element.
    return Markup(script_json(document)) if document else None  # noqa: S704


def _marked(job: JobReport, ranked: tuple[RankedFinding, ...]) -> dict[str, list[int]]:
    """The rows that findings link to, by table, in ascending order."""
    marked: dict[str, list[int]] = {}
    for each in ranked:
        row = _row_of(job, each)
        if row is not None:
            rows = marked.setdefault(str(each.finding.evidence.table), [])
            rows[:] = sorted({*rows, row})
    return marked


def _row_of(job: JobReport, ranked: RankedFinding) -> int | None:
    evidence = ranked.finding.evidence
    table = job.result.tables.get(evidence.table or "")
    return None if table is None else shown_row(table, evidence)


def _finding(page: _Page, ranked: RankedFinding, number: int) -> FindingEntry:
    name = ranked.finding.evidence.table or "ranks"
    title = units.stem(name)
    entry = finding_view(ranked, title, key(name))
    return replace(entry, key=f"finding-{number}", evidence=_evidence(page, ranked, title))


def _evidence(page: _Page, ranked: RankedFinding, title: str) -> EvidenceView:
    evidence, row = ranked.finding.evidence, _row_of(page.job, ranked)
    spec = next((spec for spec in TABLES if spec.name == evidence.table), None)
    view, id_ = None, ""
    if row is not None and spec is not None:
        one = page.job.result.tables[spec.name].take(np.array([row]))
        view = replace(table_view(spec, one), name="", detail=False)
        id_ = row_id(key(spec.name), row)
    return EvidenceView(
        table=view,
        row=id_,
        where=title if view else "",
        values=evidence_figures(evidence),
        window=None,
        window_text="",
        basis=evidence.basis,
        source=source_view(None, ranked.finding.subject, {}),
    )


def _tables(page: _Page) -> Iterator[TableView]:
    for spec, table in page.job.result.shown(TABLES):
        yield table_view(spec, table, page.most, key(spec.name), page.marked.get(spec.name, ()))
    own = _own_reports(page.job)
    if len(own):
        yield table_view(_OWN, own, page.most, key(_OWN.name))


def _own_reports(job: JobReport) -> Table:
    """The verdict and findings of each rank's own report, if it was made."""
    rows: list[dict[str, Cell]] = [
        {
            "rank": rank.name.rank,
            "limit": rank.limit,
            "verdict": rank.verdict,
            "path": rank.path,
        }
        for rank in job.ranks
        if rank.verdict
    ]
    return Table.from_rows(_OWN.columns, rows)
