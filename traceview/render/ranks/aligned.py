"""The aligned timeline of chosen ranks and time windows, as a document for the script of the page.

RankFigures has the collectives of a rank, and for the time between two of them the amounts of work
and of idle time by cause, but not when these occurred. The page states this.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.render.base.safe_text import visible
from traceview.render.timeline import packed_json
from traceview.traces.ranks.figures import KINDS, RankFigures
from traceview.traces.ranks.job import JobReport, MatchedCommunicator
from traceview.traces.ranks.process_groups import process_groups

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
        # Rows of the collectives to show, and of those before which time is shown.
        before, start, end = _times(job, shown.place)
        calls = np.flatnonzero(_in_spans(start, end, spans))[-most:]
        between = np.flatnonzero((start > before) & _in_spans(before, start, spans))[-most:]
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
    return np.stack([np.asarray(c, np.int64) for c in columns], axis=1).tolist()


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


def group_names(job: JobReport) -> list[str]:
    """The name of the group of each communicator in JobReport.matched."""
    names = [""] * len(job.matched)
    for each in process_groups(job.ranks, job.matched):
        for place in each.members:
            names[place] = visible(each.label, 120)
    return names
