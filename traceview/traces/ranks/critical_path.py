"""The critical path of a step across ranks: what the job waits for, from one step to the next.

The path is walked backwards from the last rank to arrive at the first collective of the next step.
Within a rank it passes through work and idle time to the previous collective, and continues there
on the rank that arrived last. Clocks need not be aligned for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Integers
from traceview.traces.ranks.clocks import column_of
from traceview.traces.ranks.figures import KINDS, UNKNOWN, RankFigures
from traceview.traces.ranks.job import MatchedCommunicator
from traceview.traces.ranks.lateness import GPU_WORK, LATE_CAUSES, CommonSteps

MOST_SEGMENTS = 20_000
_HIDDEN_FRACTION = 0.1
"""A collective with less than this part of its time exposed keeps no kernel waiting."""


@record
class PathSegment:
    """A part of the path on a rank (by place): `what` is one of LATE_CAUSES or of KINDS.

    `place` is a row of the rank's places, −1 where unknown.
    """

    rank: int
    what: str
    duration_ns: int
    place: int = UNKNOWN


@record
class CriticalPath:
    """The path of one step, in order of time; `step` is its number in the job."""

    step: int
    segments: tuple[PathSegment, ...]

    @property
    def duration_ns(self) -> int:
        return sum(segment.duration_ns for segment in self.segments)


@record
class _Job:
    """The communicator and column matched to each row of each rank's RankCollectives."""

    ranks: Sequence[RankFigures]
    matched: Sequence[MatchedCommunicator]
    communicator: tuple[Integers, ...]
    column: tuple[Integers, ...]
    before: tuple[Integers, ...]
    """The row of the last collective that ended before each one started, −1 for none."""


def critical_path(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> CriticalPath | None:
    """The path of the steady step of median duration; None without two adjacent matched steps."""
    anchors = _anchors(ranks, matched, steps)
    if anchors is None:
        return None
    communicator = tuple(np.full(len(figures.collectives), -1, np.int64) for figures in ranks)
    column = tuple(numbers.copy() for numbers in communicator)
    for number, of in enumerate(matched):
        for place, rank in enumerate(of.ranks):
            present = np.flatnonzero(of.rows[place] >= 0)
            communicator[rank][of.rows[place, present]] = number
            column[rank][of.rows[place, present]] = present
    job = _Job(ranks, matched, communicator, column, tuple(map(_rows_before, ranks)))
    of, columns = anchors
    usable = [
        step
        for step in np.flatnonzero(steps.steady).tolist()
        if step in columns and step + 1 in columns
    ]
    if not usable:
        return None
    first, last = (np.array([columns[step + ahead] for step in usable]) for ahead in (0, 1))
    # The time between them, on the first rank that has both; else 0.
    both = (of.rows[:, first] >= 0) & (of.rows[:, last] >= 0)
    place, ends = both.argmax(axis=0), column_of(ranks, of.ranks, of.rows, "end_ns")
    between = np.where(both.any(axis=0), ends[place, last] - ends[place, first], 0)
    lasted = dict(zip(usable, between.tolist(), strict=True))
    middle = sorted(usable, key=lambda step: (lasted[step], step))[(len(usable) - 1) // 2]
    segments = _walk(job, of, columns[middle], columns[middle + 1])
    return CriticalPath(middle, tuple(_merged(segments))) if segments else None


def _anchors(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> tuple[MatchedCommunicator, dict[int, int]] | None:
    """The largest usable communicator, and the column of its first collective in each step."""
    for of in matched:
        used = np.flatnonzero(of.last >= 0)
        step = steps.of_collectives(ranks, of.ranks, of.rows[:, used]).max(axis=0)
        numbers, first = np.unique(step, return_index=True)
        pairs = zip(numbers.tolist(), used[first].tolist(), strict=True)
        columns = {number: column for number, column in pairs if number >= 0}
        if any(number + 1 in columns for number in columns):
            return of, columns
    return None


def _rows_before(rank: RankFigures) -> Integers:
    """For each collective, the row with the last end at or before its start, −1 for none."""
    ends = rank.collectives.end_ns
    order = np.argsort(ends, kind="stable")
    number = np.searchsorted(ends[order], rank.collectives.start_ns, side="right") - 1
    return np.where(number >= 0, order[np.maximum(number, 0)], -1) if len(ends) else ends


def _walk(job: _Job, of: MatchedCommunicator, first: int, last: int) -> list[PathSegment]:
    """Segments between the last arrivals at columns `first` and `last`, found backwards."""
    place = int(of.last[last])
    rank, row = of.ranks[place], int(of.rows[place, last])
    earliest = dict(zip(of.ranks, of.rows[:, first].tolist(), strict=True))
    segments: list[PathSegment] = []
    while len(segments) < MOST_SEGMENTS:
        segments.extend(_own_time(job, rank, row))
        before = int(job.before[rank][row])
        if before < 0 or before < earliest.get(rank, -1):
            break
        rank, row, segment = _through(job, rank, before)
        segments.append(segment)
        if earliest.get(rank) == row:
            break
    return segments[::-1]


def _own_time(job: _Job, rank: int, row: int) -> list[PathSegment]:
    """Segments of work and of idle time before a collective, whose true order is not known."""
    collectives = job.ranks[rank].collectives
    spent = [int(collectives.work_ns[row]), *map(int, collectives.idle_ns[row])]
    place = int(collectives.place[row])
    return [
        PathSegment(rank, cause, ns, UNKNOWN if cause == GPU_WORK else place)
        for cause, ns in zip(LATE_CAUSES, spent, strict=True)
        if ns
    ]


def _through(job: _Job, rank: int, row: int) -> tuple[int, int, PathSegment]:
    """Step through a collective: the rank and row that arrived last, and the segment."""
    number, column = int(job.communicator[rank][row]), int(job.column[rank][row])
    collectives = job.ranks[rank].collectives
    duration = int(collectives.end_ns[row] - collectives.start_ns[row])
    if collectives.exposed_ns[row] < _HIDDEN_FRACTION * duration:
        return rank, row, PathSegment(rank, GPU_WORK, duration)
    if number >= 0 and job.matched[number].last[column] >= 0:
        of = job.matched[number]
        place = int(of.last[column])
        rank, row = of.ranks[place], int(of.rows[place, column])
        collectives = job.ranks[rank].collectives
    duration = int(collectives.end_ns[row] - collectives.start_ns[row])
    return rank, row, PathSegment(rank, KINDS[int(collectives.kind[row])], duration)


def _merged(segments: Sequence[PathSegment]) -> list[PathSegment]:
    """Merge adjacent segments of the same rank, kind and place."""
    result: list[PathSegment] = []
    for segment in segments:
        last = result[-1] if result else None
        alike = ("rank", "what", "place")
        if last and all(getattr(last, name) == getattr(segment, name) for name in alike):
            segment = replace(segment, duration_ns=last.duration_ns + segment.duration_ns)
            result.pop()
        result.append(segment)
    return result
