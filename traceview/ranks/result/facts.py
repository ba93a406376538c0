"""The facts of a job, from which its tables and sentences are made, and the map of its steps."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.ranks.critical_path import CriticalPath
from traceview.ranks.figures import RankFigures
from traceview.ranks.job import PARTS, Clocks, HeatMap, MatchedCommunicator
from traceview.ranks.lateness import GPU_WORK, LATE_CAUSES, Lateness
from traceview.ranks.matching import Inconsistency
from traceview.ranks.needs import Needs
from traceview.ranks.process_groups import ProcessGroups
from traceview.ranks.step_alignment import CommonSteps
from traceview.ranks.stragglers import Straggler
from traceview.records import record
from traceview.tables import NULL, Integers
from traceview.vocabulary.causes import LAUNCH_LATE


@record
class JobFacts:
    """The ranks, by number, and the facts derived from their collectives.

    `span_ns` is the median rank's time in the steady steps that all ranks share, or without steps
    its whole steady time. `wait_ns` has an array per rank: the wait in each of its collectives, −1
    where unknown.
    """

    ranks: tuple[RankFigures, ...]
    matched: tuple[MatchedCommunicator, ...]
    inconsistencies: tuple[Inconsistency, ...]
    clocks: Clocks
    steps: CommonSteps
    late: Lateness
    stragglers: tuple[Straggler, ...]
    groups: tuple[ProcessGroups, ...]
    path: CriticalPath | None
    span_ns: int
    wait_ns: tuple[Integers, ...]
    needs: Needs | None = None

    @property
    def has_waits(self) -> bool:
        """Whether any wait is known."""
        return any((of.last >= 0).any() for of in self.matched)

    def steady_count(self, rank: int) -> int:
        """The number of a rank's steady steps, at least 1 as times are divided by it."""
        return max(int((~self.ranks[rank].steps.warm_up).sum()), 1)

    def exposed_wait_ns(self, rank: int) -> Integers:
        """The part of the wait in each collective of a rank in which it does not compute."""
        exposed = self.ranks[rank].collectives.exposed_ns
        return np.minimum(np.maximum(self.wait_ns[rank], 0), exposed)

    def steady_ns(self, rank: int, times: Integers) -> int:
        """The sum of times of a rank's collectives in its steady steps, or without steps of all."""
        step, warm = self.ranks[rank].collectives.step, self.ranks[rank].steps.warm_up
        return int((times[(step >= 0) & ~warm[step]] if len(warm) else times).sum())


def waits_by_row(
    ranks: tuple[RankFigures, ...], matched: tuple[MatchedCommunicator, ...]
) -> tuple[Integers, ...]:
    """The wait of each collective of each rank, −1 where it is unknown."""
    waits = tuple(np.full(len(rank.collectives), -1, np.int64) for rank in ranks)
    for of in matched:
        for place, rank in enumerate(of.ranks):
            present = of.rows[place] >= 0
            waits[rank][of.rows[place, present]] = of.wait_ns[place, present]
    return waits


_LOADS = ("data-wait", "data-loading")


def heat_map(job: JobFacts) -> HeatMap:
    """The heat map of a job, without columns if it has no steps."""
    row = job.steps.row
    count, total = row.shape
    parts = np.zeros((count, total, len(PARTS)), np.int64)
    duration, warm = np.full((count, total), NULL), np.zeros((count, total), bool)
    loading = np.zeros((count, total), np.int64)
    for rank, figures in enumerate(job.ranks):
        present = np.flatnonzero(row[rank] >= 0)
        own, steps = row[rank, present], figures.steps
        duration[rank, present], warm[rank, present] = steps.duration_ns[own], steps.warm_up[own]
        waits = groups.added(figures.collectives.step, job.exposed_wait_ns(rank), len(steps))
        wait = np.minimum(waits[own], steps.exposed_ns[own])
        parts[rank, present, 0] = steps.compute_ns[own]
        parts[rank, present, 1] = steps.exposed_ns[own] - wait
        parts[rank, present, 2] = wait
        parts[rank, present, 3] = steps.copies_ns[own]
        parts[rank, present, 4:] = steps.idle_ns[own]
        loading[rank, present] = np.minimum(
            loading_in_steps(figures)[own], steps.idle_ns[own, LAUNCH_LATE]
        )
    late, more = np.zeros((count, total), np.int64), np.zeros((count, total), np.int64)
    if len(job.late.steps):
        late[:, job.late.steps] = job.late.late_ns
        more[:, job.late.steps] = job.late.parts_ns[:, :, LATE_CAUSES.index(GPU_WORK)]
    return HeatMap(job.steps.names, duration, warm, parts, late, more, loading)


def loading_in_steps(figures: RankFigures) -> Integers:
    """Idle time in each step of a rank in which its CPU waited for data or loaded it.

    Idle time that several collectives share, as they start after the same one, counts once.
    """
    collectives, count = figures.collectives, len(figures.steps)
    loads = np.array([place.what in _LOADS for place in figures.places] + [False])
    rows = np.flatnonzero(loads[collectives.place] & (collectives.step >= 0))
    if not len(rows):
        return np.zeros(count, np.int64)
    by = groups.group(collectives.step[rows], collectives.place[rows], collectives.place_ns[rows])
    once = rows[by.first]
    return groups.added(collectives.step[once], collectives.place_ns[once], count)
