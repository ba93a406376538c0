"""The ranks and the times that the aligned timeline of a job shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceview.ranks.job import JobReport, MatchedCommunicator
from traceview.tables import NULL, Array, Integers

MOST_ALL, MOST_CHOSEN = 16, 8
"""Ranks of which all are shown, and how many of more."""
_MARGIN = 0.04
"""Of the window, shown on each side of it."""
_MOST_LATE = 3


@dataclass(frozen=True)
class ShownRank:
    """A place in JobReport.ranks, and why it is shown."""

    place: int
    why: str


@dataclass(frozen=True)
class ShownWindow:
    """A window on the common clock: a step of the heat map (its column), or −1."""

    title: str
    from_ns: int
    to_ns: int
    step: int


def shown_ranks(job: JobReport) -> list[ShownRank]:
    """All of few ranks; of many those that are late, the one that waits most, and some others.

    Their clocks can be compared: ranks that nothing connects to them are left out.
    """
    late = _late(job)
    comparable = np.flatnonzero(job.clocks.component == _component(job, late))
    why = dict.fromkeys((place for place in late if place in comparable), "late")
    waits = _most_waiting(job, comparable)
    if waits is not None:
        why.setdefault(waits, "waits most")
    if len(comparable) <= MOST_ALL:
        return [ShownRank(int(place), why.get(int(place), "")) for place in comparable]
    shown = list(why)[:MOST_CHOSEN]
    others = np.setdiff1d(comparable, shown)
    spread = np.linspace(0, len(others) - 1, MOST_CHOSEN - len(shown)).round().astype(int)
    return [
        ShownRank(place, why.get(place, "")) for place in sorted({*shown, *others[spread].tolist()})
    ]


def _late(job: JobReport) -> list[int]:
    place = {rank.name.rank: at for at, rank in enumerate(job.ranks)}
    ranks = dict.fromkeys(job.result.tables["stragglers"]["rank"].tolist())
    return [place[rank] for rank in ranks if rank in place][:_MOST_LATE]


def _component(job: JobReport, late: list[int]) -> int:
    """The ranks whose clocks are connected with that of the late one, else the most of them."""
    component = job.clocks.component
    return int(component[late[0]] if late else np.bincount(component).argmax())


def _most_waiting(job: JobReport, places: Integers) -> int | None:
    table = job.result.tables["ranks"]
    wait = np.where(table.is_null("wait_ns"), 0, table["wait_ns"])[places]
    return int(places[wait.argmax()]) if len(wait) and wait.max() > 0 else None


def shown_windows(job: JobReport, ranks: list[ShownRank]) -> list[ShownWindow]:
    """The step in which ranks wait longest and the median step; else around the longest wait."""
    places = np.array([rank.place for rank in ranks], np.int64)
    steps = list(_steps(job, places))
    return steps or list(_around_longest_wait(job, places))


def _steps(job: JobReport, places: Integers) -> Iterator[ShownWindow]:
    heat = job.heat
    duration = np.where(heat.duration_ns == NULL, 0, heat.duration_ns)[places]
    if not duration.size:
        return
    shared = (duration > 0).all(axis=0) & ~heat.warm_up.any(axis=0)
    columns = np.flatnonzero(shared if shared.any() else (duration > 0).any(axis=0))
    if not len(columns):
        return
    longest = duration.max(axis=0)[columns]
    late = heat.late_ns[places].max(axis=0)[columns]
    worst = int(columns[(late if late.max() > 0 else longest).argmax()])
    median = int(columns[np.argsort(longest, kind="stable")[len(columns) // 2]])
    named = {worst: "Step with the longest wait" if late.max() > 0 else "Longest step"}
    named.setdefault(median, "Median step")
    for column, title in named.items():
        window = _of_step(job, places, column)
        if window:
            yield ShownWindow(f"{title}: {heat.steps[column]}", *window, column)


def _of_step(job: JobReport, places: Integers, column: int) -> tuple[int, int] | None:
    bounds = [step_bounds(job, int(place), column) for place in places]
    known = [each for each in bounds if each]
    if not known:
        return None
    return min(begin for begin, _ in known), max(end for _, end in known)


def step_bounds(job: JobReport, place: int, column: int) -> tuple[int, int] | None:
    """Begin and end of a step of the heat map on the common clock; None where it is absent."""
    steps, name = job.ranks[place].steps, job.heat.steps[column]
    row = {str(number): row for row, number in enumerate(steps.number.tolist())}.get(name)
    row = next((at for at, own in enumerate(steps.names) if own == name), row)
    if row is None:
        return None
    begin, end = job.clocks.aligned_ns(place, _pair(steps.begin_ns[row], steps.end_ns[row]))
    return int(begin), int(end)


def _pair(one: int, other: int) -> Integers:
    return np.array([one, other], np.int64)


def _around_longest_wait(job: JobReport, places: Integers) -> Iterator[ShownWindow]:
    """A window around the collective for which ranks waited longest."""
    waits = [_counted(each, places) for each in job.matched]
    longest = [int(each.max(initial=-1)) for each in waits]
    if max(longest, default=-1) < 0:
        return
    at = int(np.argmax(longest))
    event, span = int(waits[at].argmax()), max(longest[at], 1)
    place = int(last_places(job.matched[at])[event])
    row = job.matched[at].rows[job.matched[at].last[event], event]
    own = job.ranks[place].collectives
    start, end = job.clocks.aligned_ns(place, _pair(own.start_ns[row], own.end_ns[row]))
    yield ShownWindow("Longest wait", int(start) - 2 * span, int(end) + span, -1)


def last_places(each: MatchedCommunicator) -> Integers:
    """The place in JobReport.ranks of the rank that arrived last; any rank where unknown."""
    return np.array(each.ranks, np.int64)[each.last]


def _counted(each: MatchedCommunicator, places: Integers) -> Array:
    """How long others waited for a rank that is shown, −1 else."""
    known = (each.last >= 0) & np.isin(last_places(each), places)
    return np.where(known, each.late_ns, -1)


def with_margin(window: ShownWindow) -> tuple[int, int]:
    """The window and a little on either side of it."""
    margin = round(_MARGIN * (window.to_ns - window.from_ns))
    return window.from_ns - margin, window.to_ns + margin
