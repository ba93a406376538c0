"""The steps of all ranks, split by part."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.ranks.figures import RankFigures
from traceview.ranks.job import PARTS, HeatMap
from traceview.ranks.lateness import GPU_WORK, LATE_CAUSES
from traceview.ranks.result.facts import JobFacts
from traceview.tables import NULL, Integers
from traceview.vocabulary.causes import LAUNCH_LATE

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
