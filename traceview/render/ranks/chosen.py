"""The ranks and time windows that the aligned timeline of a job shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.ranks.job import JobReport, MatchedCommunicator
from traceview.records import record
from traceview.tables import NULL, Array, Integers

MOST_ALL, MOST_CHOSEN = 16, 8
"""Up to MOST_ALL ranks are all shown; of more, MOST_CHOSEN."""
_MARGIN = 0.04
"""Fraction of a window that is added on each side of it."""
_MOST_LATE = 3


@record
class ShownRank:
    """The place of a rank in JobReport.ranks, and why the rank is shown."""

    place: int
    why: str


@record
class ShownWindow:
    """A window on the common clock."""

    title: str
    from_ns: int
    to_ns: int

    @property
    def around(self) -> tuple[int, int]:
        """The window with a margin on either side."""
        margin = round(_MARGIN * (self.to_ns - self.from_ns))
        return self.from_ns - margin, self.to_ns + margin


@record
class StepTimes:
    """Steps of one rank: column in the heat map, start and end on the common clock."""

    column: Integers
    begin_ns: Integers
    end_ns: Integers


def shown_ranks(job: JobReport) -> list[ShownRank]:
    """All of a few ranks; of many the late ones, the one that waits most, and some others.

    Only ranks whose clocks can be compared are shown.
    """
    late = _late(job)
    comparable = np.flatnonzero(job.clocks.component == _component(job, late))
    why = dict.fromkeys((place for place in late if place in comparable), "late")
    for place, word in _by_waiting(job, comparable):
        why.setdefault(place, word)
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
    """The clock component of the first late rank, else the one with most ranks."""
    component = job.clocks.component
    return int(component[late[0]] if late else np.bincount(component).argmax())


def _by_waiting(job: JobReport, places: Integers) -> Iterator[tuple[int, str]]:
    """The rank that waits most and, if there are more than two, the median one."""
    table = job.result.tables["ranks"]
    wait = np.where(table.is_null("wait_ns"), 0, table["wait_ns"])[places]
    if len(wait) and wait.max() > 0:
        order = places[np.argsort(wait, kind="stable")]
        yield int(order[-1]), "waits most"
        if len(order) > 2:
            yield int(order[len(order) // 2]), "median"


def step_times(job: JobReport, place: int) -> StepTimes:
    """The steps of a rank that are in the heat map."""
    steps, column = job.ranks[place].steps, step_columns(job, place)
    rows = np.flatnonzero(column >= 0)
    begin, end = (
        job.clocks.aligned_ns(place, times[rows]) for times in (steps.begin_ns, steps.end_ns)
    )
    return StepTimes(column[rows], begin, end)


def step_columns(job: JobReport, place: int) -> Integers:
    """The heat map column of each step of a rank, by name or else by number; −1 for none."""
    steps, columns = job.ranks[place].steps, {name: at for at, name in enumerate(job.heat.steps)}
    numbered = zip(steps.names, steps.number.tolist(), strict=True)
    column = [columns.get(name, columns.get(str(number), -1)) for name, number in numbered]
    return np.array(column, np.int64)


def shown_windows(job: JobReport, ranks: list[ShownRank]) -> list[ShownWindow]:
    """The step with the longest wait and the median step; without steps, the longest wait."""
    places = np.array([rank.place for rank in ranks], np.int64)
    bounds = step_bounds(job, ranks)
    steps = [
        ShownWindow(f"{title}: {job.heat.steps[column]}", *bounds[column])
        for column, title in _telling_steps(job, places).items()
        if column in bounds
    ]
    return steps or list(_around_longest_wait(job, places))


def step_bounds(job: JobReport, ranks: list[ShownRank]) -> dict[int, tuple[int, int]]:
    """First start and last end, over the ranks, of each step in the heat map, by column."""
    bounds: dict[int, tuple[int, int]] = {}
    for rank in ranks:
        times = step_times(job, rank.place)
        each = (times.column.tolist(), times.begin_ns.tolist(), times.end_ns.tolist())
        for column, begin, end in zip(*each, strict=True):
            first, last = bounds.get(column, (begin, end))
            bounds[column] = min(first, begin), max(last, end)
    return bounds


def _telling_steps(job: JobReport, places: Integers) -> dict[int, str]:
    """Columns of the heat map worth showing, each with its title."""
    heat = job.heat
    duration = np.where(heat.duration_ns == NULL, 0, heat.duration_ns)[places]
    if not (duration > 0).any():
        return {}
    shared = (duration > 0).all(axis=0) & ~heat.warm_up.any(axis=0)
    columns = np.flatnonzero(shared if shared.any() else (duration > 0).any(axis=0))
    longest = duration.max(axis=0)[columns]
    late = heat.late_ns[places].max(axis=0)[columns]
    worst = int(columns[(late if late.max() > 0 else longest).argmax()])
    median = int(columns[np.argsort(longest, kind="stable")[len(columns) // 2]])
    title = "Step with the longest wait" if late.max() > 0 else "Longest step"
    return {worst: title} | ({median: "Median step"} if median != worst else {})


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
    times = np.array([own.start_ns[row], own.end_ns[row]], np.int64)
    start, end = job.clocks.aligned_ns(place, times).tolist()
    yield ShownWindow("Longest wait", start - 2 * span, end + span)


def last_places(each: MatchedCommunicator) -> Integers:
    """The place in JobReport.ranks of the last rank to arrive; arbitrary if unknown."""
    return np.array(each.ranks, np.int64)[each.last]


def _counted(each: MatchedCommunicator, places: Integers) -> Array:
    """How long others waited for the last rank if it is in `places`, else −1."""
    known = (each.last >= 0) & np.isin(last_places(each), places)
    return np.where(known, each.late_ns, -1)
