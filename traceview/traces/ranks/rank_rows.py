"""Rows of a job's tables: per rank, straggler, part of the path and step; and its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from traceview.base import units
from traceview.base.findings import Finding
from traceview.base.tables import NULL, Cell, Mask, Table, Texts
from traceview.base.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE
from traceview.traces.ranks import lateness, stragglers, tables
from traceview.traces.ranks.job import HeatMap, JobVerdict
from traceview.traces.ranks.job_facts import JobFacts

# The pattern of late steps in words: every step, every third step, one step.

_EVERY, _PERIODS, _LEAST_HITS = 0.8, range(2, 11), 3


def pattern_of(late: Mask, names: Sequence[str]) -> str:
    """The late steps in words: `every step`, `every third step`, `step 17`, `5 of 40 steps`."""
    rows = np.flatnonzero(late)
    if not len(names):
        return ""
    if len(rows) >= _EVERY * len(late):
        return "every step"
    for period in _PERIODS:
        phase = int(np.bincount(rows % period).argmax())
        hits = int((rows % period == phase).sum())
        possible = len(range(phase, len(late), period))
        if hits >= max(_LEAST_HITS, _EVERY * len(rows), _EVERY * possible):
            return f"every {_ORDINALS[period]} step"
    if len(rows) <= 2:
        return " and ".join(names[row] for row in rows.tolist())
    return f"{len(rows)} of {len(late)} steps"


_ORDINALS = ("", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
             "tenth")  # fmt: skip


# The kernels of a late rank that take longer than on the other ranks.

_LEAST_OF_WORK = 0.05
_ALL_ALIKE = 0.05
_SLOWER = 1.03


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


def longer_class(job: JobFacts, straggler: stragglers.Straggler) -> LongerClass | None:
    """The class of kernels that slows a straggler; None if GPU work is not its cause."""
    late = {each.rank for each in job.stragglers}
    others = [_per_step(job, place) for place in range(len(job.ranks)) if place not in late]
    if straggler.cause != lateness.GPU_WORK or not others:
        return None
    work = _per_step(job, straggler.rank)
    if not work:
        return None
    # Time and calls per step by class: own, and those of the median other rank.
    own = np.array(list(work.values()))
    usual = np.array(
        [np.median([other.get(kind, (0.0, 0.0)) for other in others], axis=0) for kind in work]
    )
    more, most = own[:, 0] - usual[:, 0], int(np.argmax(own[:, 0] - usual[:, 0]))
    if more[most] <= 0:
        return None
    matters, called = usual[:, 0] > _LEAST_OF_WORK * usual[:, 0].sum(), usual[:, 1] > 0
    factors = own[matters, 0] / usual[matters, 0]
    counts = own[called, 1] / usual[called, 1]
    alike = len(factors) > 1 and np.ptp(factors) <= _ALL_ALIKE * factors.min()
    same_calls = (abs(counts - 1) <= _ALL_ALIKE).all()
    with np.errstate(divide="ignore"):
        factor, calls_factor = (own[most] / usual[most]).tolist()
    return LongerClass(
        [*work][most],
        round(more[most]),
        round(more.sum()),
        factor,
        calls_factor,
        bool(alike and same_calls and factors.min() >= _SLOWER),
    )


def _per_step(job: JobFacts, rank: int) -> dict[str, tuple[float, float]]:
    """Time and calls per step by class, without communication."""
    steps = job.steady_count(rank)
    return {
        part.kind: (part.time_ns / steps, part.calls / steps)
        for part in job.ranks[rank].work
        if part.kind != stragglers.COMMUNICATION
    }


def ranks_table(job: JobFacts) -> Table:
    return Table.from_rows(tables.RANKS.columns, list(_ranks(job)))


def _ranks(job: JobFacts) -> Iterator[dict[str, Cell]]:
    worst = {late.rank: late for late in reversed(job.stragglers)}
    late_ns = job.late.late_ns.sum(axis=1)
    for place, each in enumerate(job.ranks):
        steps, straggler = job.steady_count(place), worst.get(place)
        known, waited = (job.wait_ns[place] >= 0).any(), np.maximum(job.wait_ns[place], 0)
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
            "wait_ns": job.steady_ns(place, waited) // steps if known else None,
            "late_ns": int(late_ns[place]) // steps if known else None,
            "idle_ns": sum(each.idle_ns.values()) // steps,
            "cause": straggler.cause if straggler else None,
            "place": where.text or None if where else None,
            "peak_memory_bytes": each.peak_memory_bytes,
            "clock_offset_ns": None if error == NULL else int(job.clocks.offset_ns[place]),
            "clock_error_ns": None if error == NULL else error,
            "path": each.path,
        }


def stragglers_table(job: JobFacts) -> Table:
    return Table.from_rows(
        tables.STRAGGLERS.columns, [straggler_row(job, late) for late in job.stragglers]
    )


def straggler_row(job: JobFacts, each: stragglers.Straggler) -> dict[str, Cell]:
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
    rows: list[dict[str, Cell]] = []
    offset_ns = 0
    for segment in job.path.segments if job.path else ():
        rank = job.ranks[segment.rank]
        place = rank.places[segment.place] if segment.place >= 0 else None
        rows.append(
            {
                "rank": rank.name.rank,
                "what": segment.what,
                "offset_ns": offset_ns,
                "duration_ns": segment.duration_ns,
                "place": place.text or None if place else None,
            }
        )
        offset_ns += segment.duration_ns
    return Table.from_rows(tables.CRITICAL_PATH.columns, rows)


def steps_table(job: JobFacts, heat: HeatMap) -> Table:
    """One row per rank and step, by rank."""
    rank, step = np.nonzero(job.steps.row >= 0)
    begin = np.full(job.steps.row.shape, NULL)
    for row, to, figures in zip(job.steps.row, begin, job.ranks, strict=True):
        to[row >= 0] = figures.steps.begin_ns[row[row >= 0]]
    parts = heat.parts_ns[rank, step]
    idle = parts[:, 4:]
    longest = np.where(idle.sum(axis=1) > 0, idle.argmax(axis=1), -1).astype(np.int32)
    numbers = np.array([each.name.rank for each in job.ranks], np.int64)
    return Table(
        tables.RANK_STEPS.columns,
        {
            "rank": numbers[rank],
            "step": Texts.of(job.steps.names).take(step),
            "begin_ns": begin[rank, step],
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


STRAGGLER, CPU_LAUNCH = "straggler", "cpu-launch"
_LIMIT_SHARE, _COMMUNICATION_SHARE, _WORTH_SAYING = 0.05, 0.30, 0.01
_MOST_NAMED = 2


def verdict_of(job: JobFacts, heat: HeatMap, findings: Sequence[Finding] = ()) -> JobVerdict:
    """The verdict on a job."""
    steady = np.flatnonzero(job.steps.steady & (heat.duration_ns != NULL).all(axis=0))
    longest = heat.duration_ns[:, steady].max(axis=0) if len(steady) else steady
    median = int(np.median(longest)) if len(steady) else None
    mean = round(float(longest.mean())) if len(steady) else None
    span = sum(rank.span_ns for rank in job.ranks)
    busy = sum(rank.busy_pct * rank.span_ns for rank in job.ranks) / span if span else None
    # A rank without steps counts as one step.
    places = range(len(job.ranks))
    rank_steps = sum(map(job.steady_count, places))
    waited = sum(job.steady_ns(place, job.exposed_wait_ns(place)) for place in places)
    waiting = (min(waited / span, 1.0) if span else 0.0) if job.has_waits else None
    exposed = sum(rank.exposed_ns for rank in job.ranks) / span if span else 0.0
    saved = max((late.saved_ns for late in job.stragglers), default=0)
    lasting = max((late.saved_ns for late in job.stragglers if not late.is_once), default=0)
    paced = any(
        finding.general and finding.cause == CAUSE_NAMES[LAUNCH_LATE] for finding in findings
    )
    verdict = JobVerdict(
        text="",
        limit=_limit(job, lasting, exposed, paced=paced),
        ranks=len(job.ranks),
        steps=len(steady),
        step_median_ns=median,
        gpu_busy_pct=busy,
        figures={
            "waiting_pct": None if waiting is None else 100.0 * waiting,
            "exposed_wait_ns": None if waiting is None else round(waiting * span / rank_steps),
            "exposed_pct": 100.0 * exposed,
            "stragglers": len(job.stragglers),
            "saved_ns": saved,
        },
        step_unrecorded_ns=_unrecorded_ns(job, median),
        step_mean_ns=mean,
    )
    phrases = [*_phrases(job, verdict, waiting), *(["the CPU sets the pace"] if paced else [])]
    return replace(verdict, text=" · ".join(phrases))


def _unrecorded_ns(job: JobFacts, median: int | None) -> int | None:
    return round(job.unrecorded * median) if job.unrecorded and median else None


def _limit(job: JobFacts, saved_ns: int, exposed: float, *, paced: bool) -> str:
    if job.span_ns and saved_ns >= _LIMIT_SHARE * job.span_ns:
        return STRAGGLER
    if paced:
        return CPU_LAUNCH
    if exposed >= _COMMUNICATION_SHARE:
        return stragglers.COMMUNICATION
    known = Counter(rank.limit for rank in job.ranks if rank.limit != "unknown")
    return known.most_common(1)[0][0] if known else "unknown"


def _phrases(job: JobFacts, told: JobVerdict, waiting: float | None) -> Iterator[str]:
    yield units.counted(len(job.ranks), "rank")
    if told.step_median_ns is not None:
        # Of a mean step, where that is what savings are told of.
        mean_ns = told.step_mean_ns if told.is_uneven else None
        plain_ns = _unrecorded_ns(job, mean_ns or told.step_median_ns)
        plain = f"about {units.duration(plain_ns)} without nsys" if plain_ns else ""
        mean = f"mean {units.duration(mean_ns)}" if mean_ns else ""
        beside = f"{mean}, which is {plain}" if mean and plain else mean or plain
        aside = f" ({beside})" if beside else ""
        steps = units.counted(told.steps, "steady step")
        yield f"{steps} of {units.duration(told.step_median_ns)}{aside}"
    else:
        yield f"no common steps in {units.duration(job.span_ns)}"
    if told.gpu_busy_pct is not None:
        yield f"GPU busy {units.percent(told.gpu_busy_pct)}"
        apart_pct = float(told.figures["exposed_pct"] or 0) - 100.0 * (waiting or 0.0)
        if 2 * apart_pct > told.gpu_busy_pct:
            # Else "busy" would be read as work.
            yield f"{units.percent(apart_pct)} exchanging data without computing"
    if waiting is not None and waiting >= _WORTH_SAYING:
        yield f"{units.percent(100.0 * waiting)} waiting for slower ranks"
    for each in job.stragglers[:_MOST_NAMED]:
        row = straggler_row(job, each)
        when = f" in {row['steps']}" if row["steps"] else ""
        when = f" once,{when}" if each.is_once else when
        yield f"rank {row['rank']} late by {units.duration(row['late_median_ns'])}{when}"  # type: ignore[arg-type]
    rest = len(job.stragglers) - _MOST_NAMED
    if rest > 0:
        yield f"{units.counted(rest, 'more rank')} late"
    if not job.stragglers and job.has_waits:
        yield "no rank stands out as late"
