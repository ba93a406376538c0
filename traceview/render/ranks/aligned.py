"""The aligned timeline of chosen ranks as a document for the script of the page.

RankFigures has the collectives of a rank, and for the time between two of them the amounts of work
and of idle time by cause, but not when these occurred. The page states this.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import units
from traceview.ranks.figures import KINDS, RankFigures
from traceview.ranks.job import JobReport
from traceview.records import record
from traceview.render.base.safe_text import visible
from traceview.render.ranks.chosen import (
    ShownRank,
    ShownWindow,
    last_places,
    shown_ranks,
    shown_windows,
    step_bounds,
    step_times,
)
from traceview.render.ranks.group_matrix import group_names
from traceview.render.timeline.packing import packed_json
from traceview.tables import NULL, Array, Integers, Mask
from traceview.vocabulary.causes import CAUSE_NAMES

MOST_BLOCKS = 6_000
"""Most collectives of all shown ranks together. If a job has more, those in the windows are shown,
and in a window with more, the last ones."""
Block = list[int]
_Span = tuple[int, int]


def aligned_document(job: JobReport) -> dict[str, object] | None:
    """The document that the script reads; None if there is nothing to align."""
    ranks = shown_ranks(job) if len(job.ranks) > 1 else []
    windows = shown_windows(job, ranks) if ranks else []
    if not windows:
        return None
    events, origin = _Events.of(job, ranks), windows[0].from_ns
    spans = _spans(job, ranks, windows)
    bounds = step_bounds(job, ranks)
    return {
        "kinds": KINDS,
        "causes": CAUSE_NAMES,
        "groups": events.groups,
        "clocks": _clocks(job, ranks),
        "windows": [_window(each, spans, origin) for each in windows],
        "steps": [
            [column, begin - origin, end - origin]
            for column, (begin, end) in sorted(bounds.items())
            if any(first <= begin and end <= last for first, last in spans)
        ],
        "ranks": packed_json([*_rows(job, ranks, spans, origin, events)]),
    }


def _spans(job: JobReport, ranks: list[ShownRank], windows: list[ShownWindow]) -> list[_Span]:
    """The time spans to show: the whole job, or the windows if it has too many collectives."""
    if sum(len(job.ranks[rank.place].collectives) for rank in ranks) > MOST_BLOCKS:
        return [window.around for window in windows]
    times = [(window.from_ns, window.to_ns) for window in windows]
    times += step_bounds(job, ranks).values()
    for rank in ranks:
        _, start, end = _times(job, rank.place)
        times += [(int(start.min()), int(end.max()))] if len(start) else []
    return [(min(begin for begin, _ in times), max(end for _, end in times))]


def _window(window: ShownWindow, spans: list[_Span], origin: int) -> dict[str, object]:
    """A window, and the bounds of panning from it."""
    inside = (span for span in spans if span[0] <= window.from_ns and window.to_ns <= span[1])
    first, last = next(inside, window.around)
    return {
        "title": visible(window.title, 120),
        "from": window.from_ns - origin,
        "to": window.to_ns - origin,
        "first": first - origin,
        "last": last - origin,
    }


def _clocks(job: JobReport, ranks: list[ShownRank]) -> str:
    places = [rank.place for rank in ranks]
    error = job.clocks.error_ns[places]
    if (error == NULL).all():
        return "The clocks of these ranks could not be aligned."
    if not error.any():
        return "These ranks read one clock."
    within = units.duration(int(error[error != NULL].max()))
    basis = f" by {job.clocks.basis}" if job.clocks.basis else ""
    left = len(job.ranks) - int((job.clocks.component == job.clocks.component[places[0]]).sum())
    apart = f" {units.counted(left, 'rank')} could not be aligned with them." if left else ""
    return visible(f"Clocks aligned{basis}, within {within}.{apart}", 300)


@record
class _Events:
    """Four columns per shown rank: wait, event, group and last rank of each collective.

    Unknown values are −1. An event has the same number on all its ranks.
    """

    columns: dict[int, Integers]
    groups: list[str]

    @classmethod
    def of(cls, job: JobReport, ranks: list[ShownRank]) -> _Events:
        shown = {rank.place for rank in ranks}
        columns = {
            place: np.full((4, len(job.ranks[place].collectives)), -1, np.int64) for place in shown
        }
        groups: dict[str, int] = {}
        numbers = np.array([rank.name.rank for rank in job.ranks], np.int64)
        first = 0
        for each, name in zip(job.matched, group_names(job), strict=True):
            group = groups.setdefault(name, len(groups))
            last = np.where(each.last >= 0, numbers[last_places(each)], -1)
            for at, place in enumerate(each.ranks):
                if place in shown:
                    present = each.rows[at] >= 0
                    event = first + np.flatnonzero(present)
                    known = (
                        each.wait_ns[at][present],
                        event,
                        np.full(len(event), group),
                        last[present],
                    )
                    columns[place][:, each.rows[at][present]] = known
            first += each.rows.shape[1]
        return cls(columns, list(groups))


def _rows(
    job: JobReport, ranks: list[ShownRank], spans: list[_Span], origin: int, events: _Events
) -> Iterator[dict[str, object]]:
    """A row per rank: its collectives, the time between them, and the bounds of its steps."""
    most = MOST_BLOCKS // len(ranks)
    for shown in ranks:
        rank, steps = job.ranks[shown.place], step_times(job, shown.place)
        known = _in_spans(steps.begin_ns, steps.end_ns, spans)
        ticks = np.concatenate([steps.begin_ns[known], steps.end_ns[known]]) - origin
        calls, between = _blocks(job, shown.place, spans, most)
        yield {
            "rank": rank.name.rank,
            "why": shown.why,
            "host": visible(rank.name.host, 120),
            "steps": np.unique(ticks).tolist(),
            "calls": _calls(job, shown.place, calls, origin, events.columns[shown.place]),
            "between": list(_between(job, shown.place, between, origin)),
            "places": [_place(rank, at) for at in range(len(rank.places))],
        }


def _in_spans(start: Integers, end: Integers, spans: list[_Span]) -> Mask:
    """True for each [start, end) that overlaps a span."""
    shown = np.zeros(len(start), bool)
    for first, last in spans:
        shown |= (end > first) & (start < last)
    return shown


def _blocks(job: JobReport, place: int, spans: list[_Span], most: int) -> tuple[Integers, Integers]:
    """Rows of the collectives to show, and of those whose time before them is to be shown."""
    before, start, end = _times(job, place)
    calls = np.flatnonzero(_in_spans(start, end, spans))[-most:]
    between = np.flatnonzero((start > before) & _in_spans(before, start, spans))[-most:]
    return calls, between


def _times(job: JobReport, place: int) -> tuple[Integers, Integers, Integers]:
    """For each collective the end of the previous one, its start and end, on the common clock."""
    own = job.ranks[place].collectives
    start = job.clocks.aligned_ns(place, own.start_ns)
    end = job.clocks.aligned_ns(place, own.end_ns)
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1]) if len(end) else end
    return before, start, end


def _calls(job: JobReport, place: int, rows: Integers, origin: int, known: Integers) -> list[Block]:
    """Start, duration, hidden time, kind, bytes, wait, event, group, last rank of each call."""
    own, (_, start, end) = job.ranks[place].collectives, _times(job, place)
    duration = (end - start)[rows]
    columns = (
        start[rows] - origin,
        duration,
        np.maximum(duration - own.exposed_ns[rows], 0),
        own.kind[rows],
        own.bytes[rows],
        *known[:, rows],
    )
    blocks: list[Block] = np.stack([np.asarray(c, np.int64) for c in columns], axis=1).tolist()
    return blocks


def _between(job: JobReport, place: int, rows: Integers, origin: int) -> Iterator[Block]:
    """For the time before each collective: start, duration, work, place, and idle time by cause."""
    own, (before, start, _) = job.ranks[place].collectives, _times(job, place)
    for row in rows.tolist():
        idle: Array = own.idle_ns[row]
        causes = [int(n) for at in np.flatnonzero(idle) for n in (at, idle[at])]
        began = int(before[row])
        times = [began - origin, int(start[row]) - began, int(own.work_ns[row])]
        yield [*times, int(own.place[row]), *causes]


def _place(rank: RankFigures, at: int) -> str:
    place = rank.places[at]
    what = f" ({place.what})" if place.what else ""
    return visible(f"{place.text}{what}" if place.text else place.what, 160)
