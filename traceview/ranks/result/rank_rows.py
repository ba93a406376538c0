"""The tables with a row per rank, per straggler, per part of the path and per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceview.ranks.job import HeatMap
from traceview.ranks.lateness import GPU_WORK
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.stragglers import Straggler
from traceview.ranks.tables import CRITICAL_PATH, RANK_STEPS, RANKS, STRAGGLERS
from traceview.tables import NULL, Cell, Integers, Mask, Table, Texts
from traceview.vocabulary.causes import CAUSE_NAMES

# The pattern of late steps in words: every step, every third step, one step.

_EVERY, _PERIODS, _LEAST_HITS = 0.8, range(2, 11), 3


def pattern_of(late: Mask, names: Sequence[str]) -> str:
    """The late steps in words: `every step`, `every third step`, `step 17`, `5 of 40 steps`."""
    rows = np.flatnonzero(late)
    if not len(names):
        return ""
    if len(rows) >= _EVERY * len(late):
        return "every step"
    period = next(_fitting(rows, len(late)), None)
    if period:
        return f"every {_ORDINALS[period]} step"
    if len(rows) <= 2:
        return " and ".join(names[row] for row in rows.tolist())
    return f"{len(rows)} of {len(late)} steps"


_ORDINALS = ("", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
             "tenth")  # fmt: skip


def _fitting(rows: Integers, count: int) -> Iterator[int]:
    """The periods at which the steps `rows` recur."""
    for period in _PERIODS:
        phase = int(np.bincount(rows % period).argmax())
        hits = int((rows % period == phase).sum())
        possible = len(range(phase, count, period))
        if hits >= max(_LEAST_HITS, _EVERY * len(rows), _EVERY * possible):
            yield period


# The kernels of a late rank that take longer than on the other ranks.

_LEAST_OF_WORK = 0.05
_ALL_ALIKE = 0.05
_SLOWER = 1.03
_COMMUNICATION = "communication"


class LongerClass(NamedTuple):
    """The class of kernels with most extra time per step against the median other rank.

    `more_ns` is its extra time, `whole_ns` the extra time of all classes; `factor` and
    `calls_factor` are the ratios of its time and its calls. `all_slower` is True if every class
    that matters takes longer by the same factor with equally many calls: the GPU then runs at a
    lower clock, whatever the kernels.
    """

    kind: str
    more_ns: int
    whole_ns: int
    factor: float
    calls_factor: float
    all_slower: bool


class _Compared(NamedTuple):
    """Time and calls per step of a class of kernels, own and of the median other rank."""

    kind: str
    time: float
    calls: float
    usual: float
    usual_calls: float


def longer_class(job: JobFacts, straggler: Straggler) -> LongerClass | None:
    """The class of kernels that slows a straggler; None if GPU work is not its cause."""
    rows = _compared(job, straggler.rank) if straggler.cause == GPU_WORK else []
    most = max(rows, key=lambda row: row.time - row.usual, default=None)
    if most is None or most.time <= most.usual:
        return None
    whole = sum(row.usual for row in rows)
    factors = [row.time / row.usual for row in rows if row.usual > _LEAST_OF_WORK * whole]
    counts = [row.calls / row.usual_calls for row in rows if row.usual_calls]
    alike = len(factors) > 1 and max(factors) - min(factors) <= _ALL_ALIKE * min(factors)
    same_calls = all(abs(each - 1) <= _ALL_ALIKE for each in counts)
    return LongerClass(
        most.kind,
        round(most.time - most.usual),
        round(sum(row.time - row.usual for row in rows)),
        most.time / most.usual if most.usual else float("inf"),
        most.calls / most.usual_calls if most.usual_calls else float("inf"),
        alike and same_calls and min(factors) >= _SLOWER,
    )


def _compared(job: JobFacts, rank: int) -> list[_Compared]:
    late = {each.rank for each in job.stragglers}
    own = _per_step(job, rank)
    others = [_per_step(job, place) for place in range(len(job.ranks)) if place not in late]
    if not others:
        return []
    compared = []
    for kind, (time, calls) in own.items():
        usual = np.median([each.get(kind, (0.0, 0.0)) for each in others], axis=0).tolist()
        compared.append(_Compared(kind, time, calls, usual[0], usual[1]))
    return compared


def _per_step(job: JobFacts, rank: int) -> dict[str, tuple[float, float]]:
    """Time and calls per step by class, without communication."""
    figures = job.ranks[rank]
    steps = job.steady_count(rank)
    return {
        each.kind: (each.time_ns / steps, each.calls / steps)
        for each in figures.work
        if each.kind != _COMMUNICATION
    }


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
