"""A comparison of runs as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path, PurePath

import numpy as np
from markupsafe import Markup

from traceview.base import units
from traceview.base.records import record
from traceview.render.base.code import color_class
from traceview.render.base.page import SCRIPT, STYLES, TIMELINE, Style, rendered
from traceview.render.comparison import document
from traceview.render.document import ScoreTile
from traceview.render.timeline import TimelineView, timeline_view
from traceview.traces.comparison import wording
from traceview.traces.comparison.changes import main_changes
from traceview.traces.comparison.comparison import RunComparison
from traceview.traces.comparison.window import run_window
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import pace
from traceview.traces.trace import Trace

MOST_PARTS = 200
_HALF, _HEIGHT = 100, 12
_LEAST_BAR = 1.0
_LEAST_OPENED, _MOST_OPENED = Fraction(1, 4), 12
"""Initially open groups: the least share of the largest group, and the most rows."""


@record
class BarRow:
    """A row of the table of parts: its bar, and the rows or values below it.

    If `opened`, the page shows the latter initially.
    """

    title: str
    place: str
    change: str
    bar: Markup
    amounts: document.Amounts
    rows: tuple[BarRow, ...] = ()
    details: tuple[tuple[str, str, str], ...] = ()
    opened: bool = False


@record
class ComparedView:
    """The content of the templates, apart from the timelines."""

    before: str
    after: str
    headline: str
    facts: list[str]
    tiles: list[ScoreTile]
    environment: list[tuple[str, str, str]]
    changes: list[tuple[str, str, str]]
    rows: list[BarRow]
    total: document.Amounts
    has_shares: bool
    per: str
    counted: str
    counts: list[tuple[str, str, str, bool]]
    notes: list[str]


def compared_view(comparison: RunComparison) -> ComparedView:
    """The view of a comparison."""
    table = document.parts_table(comparison, MOST_PARTS)
    before, after = document.sides(comparison)
    return ComparedView(
        before=before,
        after=after,
        headline=wording.headline(comparison),
        facts=document.compared_sides(comparison),
        tiles=list(_tiles(comparison)),
        environment=[
            (wording.environment_name(each), each.before, each.after)
            for each in comparison.environment
        ],
        changes=list(_changes(comparison)),
        rows=[_group_row(group, table.largest_ns) for group in table.groups],
        total=table.total,
        has_shares=table.has_shares,
        per=document.per_step(comparison, table),
        counted="per step" if wording.has_steps(comparison) else "",
        counts=list(_counts(comparison)),
        notes=list(wording.notes(comparison)),
    )


def _tiles(comparison: RunComparison) -> Iterator[ScoreTile]:
    one, other = units.durations(float(comparison.before_ns), float(comparison.after_ns))
    unit = other.rpartition(" ")[2]
    per = "per step" if wording.has_steps(comparison) else "of steady GPU time"
    yield ScoreTile("before", "Before", f"{one} {unit}", per)
    yield ScoreTile("after", "After", other, per)
    difference = units.difference(float(comparison.delta_ns)) or "0"
    yield ScoreTile("difference", "Difference", difference, wording.change_of_time(comparison))
    yield ScoreTile("certainty", "Certainty", *_sure(comparison))


def _sure(comparison: RunComparison) -> tuple[str, str]:
    certainty = comparison.certainty
    runs = document.both_sides([certainty.runs_before, certainty.runs_after], "run")
    if certainty.basis != "runs" or certainty.low_ns is None or certainty.high_ns is None:
        return "not known", f"{runs}; record at least 4"
    low, high = units.difference(certainty.low_ns), units.difference(certainty.high_ns)
    value = units.percent(certainty.level * 100) if certainty.is_certain else "within noise"
    return value, f"{low or '0'} to {high or '0'}, {runs}"


def _changes(comparison: RunComparison) -> Iterator[tuple[str, str, str]]:
    """Difference, direction and sentence of each change."""
    listed = main_changes(comparison)
    for change, signed in zip(listed, document.change_differences(comparison, listed), strict=True):
        yield signed, "high" if change.delta_ns > 0 else "faster", change.text


def _counts(comparison: RunComparison) -> Iterator[tuple[str, str, str, bool]]:
    for count in wording.changed_counts(comparison):
        before, after = (wording.count_text(count, each) for each in (count.before, count.after))
        yield wording.count_name(count), before, after, count.varies


def _group_row(group: document.GroupLine, largest: Fraction) -> BarRow:
    rows = [_part_row(line, group.meaning, largest) for line in group.parts]
    if group.rest and group.parts:
        rest = f"{units.count(group.left_out)} smaller"
        rows.append(BarRow(rest, "", "", _bar(group.rest, group.meaning, largest), group.rest))
    bar = _bar(group.amounts, group.meaning, largest)
    tells = abs(group.amounts.delta_ns) >= largest * _LEAST_OPENED and len(rows) <= _MOST_OPENED
    return BarRow(group.title, "", "", bar, group.amounts, tuple(rows), opened=tells)


def _part_row(line: document.PartLine, meaning: str, largest: Fraction) -> BarRow:
    own = line.part.name if line.part.kind == "idle" else meaning
    return BarRow(
        line.title,
        line.part.place,
        line.change,
        _bar(line.amounts, own, largest),
        line.amounts,
        details=line.details,
    )


def _bar(amounts: document.Amounts, meaning: str, largest: Fraction) -> Markup:
    """A bar from the middle: to the right if the part takes longer, to the left if less."""
    share = float(abs(amounts.delta_ns) / largest) if largest else 0.0
    width = min(max(share * _HALF, _LEAST_BAR if amounts.delta_ns else 0.0), _HALF)
    x = _HALF if amounts.delta_ns > 0 else _HALF - width
    style = color_class(meaning) or "c-other"
    return Markup(  # noqa: S704 - numbers and a class of ours
        f'<svg viewBox="0 0 {2 * _HALF} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{style}" x="{x:.2f}" y="1" width="{width:.2f}" height="{_HEIGHT - 2}"/>'
        f'<line class="grid" x1="{_HALF}" y1="0" x2="{_HALF}" y2="{_HEIGHT}"/></svg>'
    )


@record
class SideTimeline:
    """The timeline of one side, aligned at `anchor_ns` on the clock of its recording."""

    name: str
    title: str
    view: TimelineView
    anchor_ns: int
    length_ns: int


def side_timelines(traces: Sequence[Trace | None]) -> list[SideTimeline]:
    """The timelines of both sides; an empty list if a side has no recording to draw."""
    timelines = list(_timelines(traces))
    return timelines if len(timelines) == len(traces) else []


def _timelines(traces: Sequence[Trace | None]) -> Iterator[SideTimeline]:
    for name, recording in zip(("before", "after"), traces, strict=True):
        if recording is None:
            return
        trace = with_steps(recording)
        view = timeline_view(trace)
        if view is not None:
            title = PurePath(trace.path).name
            yield SideTimeline(name, title, view, *typical_step(trace))


def typical_step(trace: Trace) -> tuple[int, int]:
    """Start and duration of the median step, or without steps of the steady window."""
    window = run_window(trace)
    if not len(window.steps):
        return int(window.covered.start[0]), window.total_ns
    middle = int(np.argsort(window.step_ns, kind="stable")[len(window.step_ns) // 2])
    begin = pace(trace).begin_ns[window.steps[middle]]
    return int(begin), int(window.step_ns[middle])


_ALIGNED = {
    True: "Aligned at the start of the median step of the median run of each side.",
    False: "Aligned at the start of the steady time of each side.",
}


def render_html(
    comparison: RunComparison, version: str, traces: Sequence[Trace | None] = (None, None)
) -> str:
    """The page, with a timeline for each recording in `traces` (before, after)."""
    view, timelines = compared_view(comparison), side_timelines(traces)
    return rendered(
        "comparison.html",
        Style((*STYLES, "comparison.css")),
        *((TIMELINE, SCRIPT) if timelines else (SCRIPT,)),
        comparison=view,
        timelines=timelines,
        aligned=_ALIGNED[wording.has_steps(comparison)],
        title=f"{view.before} → {view.after}",
        version=version,
    )


def render_with_recordings(comparison: RunComparison, version: str) -> str:
    """The page with timelines; recordings that were not kept are read again."""
    from traceview.api.traces import load

    traces = [load(each) if isinstance(each, Path) else each for each in comparison.recordings]
    return render_html(comparison, version, traces)
