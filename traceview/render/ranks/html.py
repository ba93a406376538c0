"""A job of many ranks as one self-contained HTML page, with its heat map and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Cell, Integers, Table, TableSpec, column_list
from traceview.render.base.page import (
    MOST_ROWS,
    STYLES,
    Style,
    TableView,
    key,
    rendered,
    row_id,
    table_view,
)
from traceview.render.base.safe_text import visible
from traceview.render.ranks.aligned import aligned_document, step_columns
from traceview.render.ranks.document import (
    job_facts,
    job_tiles,
    job_title,
    nothing_found,
    ranked_findings,
    remedies,
    warnings,
)
from traceview.render.report.evidence import EvidenceView, evidence_figures, shown_row, source_view
from traceview.render.report.html import FindingEntry, finding_view
from traceview.render.timeline import packed_numbers, script_json
from traceview.traces.plan import RankedFinding
from traceview.traces.ranks.job import PARTS, HeatMap, JobReport
from traceview.traces.ranks.process_groups import ProcessGroups, process_groups
from traceview.traces.ranks.tables import TABLES

# The heat map of ranks and steps as a document for the script of the page.
#
# Times have three significant digits, as they are shown: a 16-bit code per cell, which packs to a
# third of the exact nanoseconds.

MOST_STEPS, MOST_CELLS = 300, 250_000
"""Most columns and cells of the map; in a longer job, a column is the mean of several steps."""
_LEAST_SHARE = 0.005
"""Fraction of a step below which a part is not shown."""
_FIRST = len(("compute", "communication", "wait"))
"""Number of the first parts, which are always included."""


def heat_document(job: JobReport) -> dict[str, object] | None:
    """The document that the script reads; None without steps."""
    heat = job.heat
    if not len(heat.steps) or not len(job.ranks) or not (heat.duration_ns != NULL).any():
        return None
    binned = _binned(heat, _cpu_times(job))
    parts = [part for part in range(len(PARTS)) if part < _FIRST or binned.parts_ns[part].any()]
    late = {int(rank) for rank in job.result.tables["stragglers"]["rank"]}
    hosts = list(dict.fromkeys(visible(rank.name.host, 120) for rank in job.ranks))
    place = {host: at for at, host in enumerate(hosts)}
    return {
        "ranks": [rank.name.rank for rank in job.ranks],
        "late": sorted(late),
        "hosts": hosts,
        "host": [place[visible(rank.name.host, 120)] for rank in job.ranks],
        "steps": [visible(name, 60) for name in binned.steps],
        "loop": visible(_loop_name(heat.steps), 60),
        "mean_of": binned.width,
        "warm_up": binned.warm_up.tolist(),
        "parts": [PARTS[part] for part in parts],
        "duration": packed_numbers(three_digits(binned.duration_ns).ravel()),
        "cpu": packed_numbers(three_digits(binned.cpu_ns).ravel()) if binned.cpu_ns.any() else None,
        "lateness": packed_numbers(three_digits(binned.late_ns).ravel()),
        "times": [packed_numbers(three_digits(binned.parts_ns[part]).ravel()) for part in parts],
    }


@record
class _Binned:
    """Columns of the map; each is the mean over `width` steps. Times have shape (ranks, columns).

    `duration_ns` is 0 where a rank lacks the step, `cpu_ns` where it is not known; `parts_ns` has
    one array per part.
    """

    steps: list[str]
    width: int
    warm_up: Array
    duration_ns: Array
    late_ns: Array
    cpu_ns: Array
    parts_ns: list[Array]


def _cpu_times(job: JobReport) -> Integers:
    """The CPU time of each rank per step, 0 where unknown."""
    result = np.zeros(job.heat.duration_ns.shape, np.int64)
    for place, rank in enumerate(job.ranks):
        if rank.steps.cpu_ns is not None:
            column = step_columns(job, place)
            rows = np.flatnonzero(column >= 0)
            result[place, column[rows]] = np.maximum(rank.steps.cpu_ns[rows], 0)
    return result


def _binned(heat: HeatMap, cpu_ns: Integers) -> _Binned:
    ranks, steps = heat.duration_ns.shape
    width = -(-steps // min(MOST_STEPS, max(MOST_CELLS // ranks, 1)))
    first = np.arange(0, steps, width)
    present = heat.duration_ns != NULL
    count = np.maximum(np.add.reduceat(present, first, axis=1, dtype=np.int64), 1)

    def mean(values: Array) -> Array:
        kept = np.where(present, values, 0)
        return np.add.reduceat(kept, first, axis=1) / count

    duration = mean(heat.duration_ns)
    parts = [mean(heat.parts_ns[:, :, part]) for part in range(len(PARTS))]
    shown = [np.where(times >= _LEAST_SHARE * duration, times, 0) for times in parts]
    last = np.minimum(first + width, steps) - 1
    warm_up = np.maximum.reduceat(heat.warm_up.any(axis=0), first)
    short = short_names(heat.steps)
    names = [_name(short[a], short[b]) for a, b in zip(first, last, strict=True)]
    return _Binned(names, width, warm_up, duration, mean(heat.late_ns), mean(cpu_ns), shown)


def short_names(steps: Sequence[str]) -> list[str]:
    """The step names without their common prefix: `10` for `step_10`."""
    loop = _loop_name(steps)
    return [name.removeprefix(loop).lstrip("_# ") for name in steps]


def _loop_name(steps: Sequence[str]) -> str:
    """The common prefix of numbered step names, such as `step` for `step_10`; else empty."""
    names = {name.rstrip("0123456789") for name in steps}
    numbered = all(name[-1:].isdecimal() for name in steps)
    return names.pop().rstrip("_# ") if len(names) == 1 and numbered else ""


def _name(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def three_digits(times_ns: Array) -> Integers:
    """Times ≥ 0 as 1000 × exponent + mantissa: 57,432,118 becomes 5574, which is 574 × 10^5 ns."""
    times = np.asarray(times_ns, np.float64)
    large = np.maximum(times, 1.0)
    exponent = np.maximum(np.floor(np.log10(large)) - 2, 0).astype(np.int64)
    mantissa = np.rint(times / 10.0**exponent).astype(np.int64)
    carried = mantissa >= 1_000
    return np.where(carried, 1_000 * (exponent + 1) + 100, 1_000 * exponent + mantissa)


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
    column_list("""
        rank int64: number of the rank
        limit text: what limits it
        verdict sentence: its own verdict
        path text: recording
    """),
    brief="rank limit verdict",
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
        Style((*STYLES, "rail.css", "ranks.css")),
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
    # The verdict and findings of each rank's own report, if it was made.
    rows: list[dict[str, Cell]] = [
        {"rank": rank.name.rank, "limit": rank.limit, "verdict": rank.verdict, "path": rank.path}
        for rank in page.job.ranks
        if rank.verdict
    ]
    own = Table.from_rows(_OWN.columns, rows)
    if len(own):
        yield table_view(_OWN, own, page.most, key(_OWN.name))
