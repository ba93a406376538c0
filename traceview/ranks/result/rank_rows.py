"""The tables with a row per rank, per straggler, per part of the path and per step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.ranks.job import HeatMap
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.result.slower_kernels import longer_class
from traceview.ranks.result.step_pattern import pattern_of
from traceview.ranks.stragglers import Straggler
from traceview.ranks.tables import CRITICAL_PATH, RANK_STEPS, RANKS, STRAGGLERS
from traceview.tables import NULL, Cell, Integers, Table, Texts
from traceview.vocabulary.causes import CAUSE_NAMES

Rows = Iterator[dict[str, Cell]]


def ranks_table(job: JobFacts) -> Table:
    return Table.from_rows(RANKS.columns, list(_ranks(job)))


def _ranks(job: JobFacts) -> Rows:
    worst = {each.rank: each for each in reversed(job.stragglers)}
    late_ns = job.late.late_ns.sum(axis=1)
    for place, each in enumerate(job.ranks):
        steps, straggler = job.steady_count(place), worst.get(place)
        known = bool((job.wait_ns[place] >= 0).any())
        where = None if straggler is None else straggler.place
        error = int(job.clocks.error_ns[place])
        yield {
            "rank": each.name.rank,
            "host": each.name.host or None,
            "device_id": each.name.device_id,
            "step_median_ns": each.step_median_ns,
            "busy_pct": each.busy_pct,
            "compute_ns": each.compute_ns // steps,
            "exposed_ns": each.exposed_ns // steps,
            "hidden_ns": each.hidden_ns // steps,
            "wait_ns": _steady_wait_ns(job, place) // steps if known else None,
            "late_ns": int(late_ns[place]) // steps if known else None,
            "idle_ns": sum(each.idle_ns.values()) // steps,
            "cause": straggler.cause if straggler else None,
            "place": where.text or None if where else None,
            "peak_memory_bytes": each.peak_memory_bytes,
            "clock_offset_ns": None if error == NULL else int(job.clocks.offset_ns[place]),
            "clock_error_ns": None if error == NULL else error,
            "path": each.path,
        }


def _steady_wait_ns(job: JobFacts, rank: int) -> int:
    """The time that a rank waited in its steady steps, or without steps in all collectives."""
    wait, step = np.maximum(job.wait_ns[rank], 0), job.ranks[rank].collectives.step
    warm = job.ranks[rank].steps.warm_up
    if len(warm):
        wait = wait[(step >= 0) & ~warm[step]]
    return int(wait.sum())


def stragglers_table(job: JobFacts) -> Table:
    return Table.from_rows(
        STRAGGLERS.columns, [straggler_row(job, each) for each in job.stragglers]
    )


def straggler_row(job: JobFacts, each: Straggler) -> dict[str, Cell]:
    place, longer = each.place, longer_class(job, each)
    names = [job.steps.names[step] for step in job.late.steps.tolist()]
    return {
        "rank": job.ranks[each.rank].name.rank,
        "steps": pattern_of(each.late, names) or None,
        "late_steps": int(each.late.sum()) if names else None,
        "calls": each.calls,
        "late_ns": int(each.late_ns.sum()),
        "late_median_ns": int(np.median(each.late_ns)),
        "others_wait_ns": each.others_wait_ns,
        "cause": each.cause,
        "place": place.text or None if place else None,
        "kernel_class": longer.kind if longer else None,
    }


def path_table(job: JobFacts) -> Table:
    return Table.from_rows(CRITICAL_PATH.columns, list(_segments(job)))


def _segments(job: JobFacts) -> Rows:
    at = 0
    for each in job.path.segments if job.path else ():
        place = job.ranks[each.rank].places[each.place] if each.place >= 0 else None
        yield {
            "rank": job.ranks[each.rank].name.rank,
            "what": each.what,
            "offset_ns": at,
            "duration_ns": each.duration_ns,
            "avoidable_ns": each.avoidable_ns,
            "place": place.text or None if place else None,
        }
        at += each.duration_ns


def steps_table(job: JobFacts, heat: HeatMap) -> Table:
    """One row per rank and step, by rank."""
    rank, step = np.nonzero(job.steps.row >= 0)
    parts = heat.parts_ns[rank, step]
    idle = parts[:, 4:]
    longest = np.where(idle.sum(axis=1) > 0, idle.argmax(axis=1), -1).astype(np.int32)
    numbers = np.array([each.name.rank for each in job.ranks], np.int64)
    return Table(
        RANK_STEPS.columns,
        {
            "rank": numbers[rank],
            "step": Texts.of(job.steps.names).take(step),
            "begin_ns": _begins(job, rank, step),
            "duration_ns": heat.duration_ns[rank, step],
            "compute_ns": parts[:, 0].copy(),
            "exposed_ns": parts[:, 1] + parts[:, 2],
            "wait_ns": parts[:, 2].copy(),
            "copies_ns": parts[:, 3].copy(),
            "idle_ns": idle.sum(axis=1),
            "cause": Texts(longest, np.array(CAUSE_NAMES, object)),
            "late_ns": heat.late_ns[rank, step],
        },
    )


def _begins(job: JobFacts, rank: Integers, step: Integers) -> Integers:
    begin = np.full(job.steps.row.shape, NULL)
    for place, each in enumerate(job.ranks):
        present = job.steps.row[place] >= 0
        begin[place, present] = each.steps.begin_ns[job.steps.row[place, present]]
    return begin[rank, step]
