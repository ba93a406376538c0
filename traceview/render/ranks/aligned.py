"""The aligned timeline of chosen ranks as a document for the script of the page.

RankFigures holds the collectives of a rank, and for the time between two of them how much of it
was work and how much was idle by cause, but not when. The page says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from traceview import units
from traceview.facts.idle.causes import CAUSES
from traceview.ranks.figures import KINDS, RankFigures
from traceview.ranks.job import JobReport
from traceview.render.base.safe_text import visible
from traceview.render.ranks.chosen import (
    ShownRank,
    ShownWindow,
    last_places,
    shown_ranks,
    shown_windows,
    step_bounds,
    with_margin,
)
from traceview.render.ranks.group_matrix import group_names
from traceview.render.timeline.packing import packed_json
from traceview.tables import NULL, Array, Integers

MOST_BLOCKS = 12_000
"""Collectives of all ranks in a window; of one with more, its end is shown."""
Block = list[int]


def aligned_document(job: JobReport) -> dict[str, object] | None:
    """What the script reads; None where there is nothing to align."""
    ranks = shown_ranks(job) if len(job.ranks) > 1 else []
    windows = shown_windows(job, ranks) if ranks else []
    if not windows:
        return None
    events = _Events.of(job, ranks)
    return {
        "kinds": KINDS,
        "causes": CAUSES,
        "groups": events.groups,
        "clocks": _clocks(job, ranks),
        "windows": [
            {
                "title": visible(window.title, 120),
                "span": window.to_ns - window.from_ns,
                "ranks": packed_json([*_rows(job, ranks, window, events)]),
            }
            for window in windows
        ],
    }


def _clocks(job: JobReport, ranks: list[ShownRank]) -> str:
    places = [rank.place for rank in ranks]
    error = job.clocks.error_ns[places]
    if (error == NULL).all():
        return "The clocks of these ranks could not be aligned."
    within = units.duration(int(error[error != NULL].max()))
    basis = f" by {job.clocks.basis}" if job.clocks.basis else ""
    left = len(job.ranks) - int((job.clocks.component == job.clocks.component[places[0]]).sum())
    apart = f" {units.counted(left, 'rank')} could not be aligned with them." if left else ""
    return visible(f"Clocks aligned{basis}, within {within}.{apart}", 300)


@dataclass(frozen=True)
class _Events:
    """For each shown rank, by row of its collectives: wait, event, group and the last rank.

    −1 where unknown. An event has one number on all its ranks.
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
                    there = each.rows[at] >= 0
                    event = first + np.flatnonzero(there)
                    known = (
                        each.wait_ns[at][there],
                        event,
                        np.full(len(event), group),
                        last[there],
                    )
                    columns[place][:, each.rows[at][there]] = known
            first += each.rows.shape[1]
        return cls(columns, list(groups))


def _rows(
    job: JobReport, ranks: list[ShownRank], window: ShownWindow, events: _Events
) -> Iterator[dict[str, object]]:
    """Each rank: its collectives, what it did between them, and its steps, from the window on."""
    most = MOST_BLOCKS // len(ranks)
    for shown in ranks:
        rank = job.ranks[shown.place]
        bounds = step_bounds(job, shown.place, window.step) if window.step >= 0 else None
        yield {
            "rank": rank.name.rank,
            "why": shown.why,
            "host": visible(rank.name.host, 120),
            "step": [time - window.from_ns for time in bounds] if bounds else [],
            "calls": _calls(job, shown.place, window, events.columns[shown.place], most),
            "between": list(_between(job, shown.place, window, most)),
            "places": [_place(rank, at) for at in range(len(rank.places))],
        }


def _times(job: JobReport, place: int) -> tuple[Integers, Integers, Integers]:
    """End of the last collective before, start and end of each, on the common clock."""
    own = job.ranks[place].collectives
    start = job.clocks.aligned_ns(place, own.start_ns)
    end = job.clocks.aligned_ns(place, own.end_ns)
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1]) if len(end) else end
    return before, start, end


def _calls(
    job: JobReport, place: int, window: ShownWindow, known: Integers, most: int
) -> list[Block]:
    """Start, duration, hidden time, kind, bytes, wait, event, group and last rank of each."""
    own, (_, start, end) = job.ranks[place].collectives, _times(job, place)
    first, last = with_margin(window)
    rows = np.flatnonzero((end > first) & (start < last))[-most:]
    duration = (end - start)[rows]
    columns = (
        (start - window.from_ns)[rows],
        duration,
        np.maximum(duration - own.exposed_ns[rows], 0),
        own.kind[rows],
        own.bytes[rows],
        *known[:, rows],
    )
    blocks: list[Block] = np.stack([np.asarray(c, np.int64) for c in columns], axis=1).tolist()
    return blocks


def _between(job: JobReport, place: int, window: ShownWindow, most: int) -> Iterator[Block]:
    """Start, duration, work, place, and cause and time of each idle time, before a collective."""
    own, (before, start, _) = job.ranks[place].collectives, _times(job, place)
    first, last = with_margin(window)
    rows = np.flatnonzero((start > np.maximum(before, first)) & (before < last))[-most:]
    for row in rows.tolist():
        idle: Array = own.idle_ns[row]
        causes = [int(n) for at in np.flatnonzero(idle) for n in (at, idle[at])]
        began = int(before[row])
        where = int(own.place[row])
        yield [
            began - window.from_ns,
            int(start[row]) - began,
            int(own.work_ns[row]),
            where,
            *causes,
        ]


def _place(rank: RankFigures, at: int) -> str:
    place = rank.places[at]
    where = f"{PurePath(place.file).name}:{place.line}" if place.line else place.text
    return visible(" in ".join(part for part in (place.what, where) if part), 160)
