"""The verdict on a job in one line: ranks, steps, GPU busy, who is late, what limits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from traceview import units
from traceview.findings import Finding
from traceview.ranks.job import HeatMap, JobVerdict
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.result.rank_rows import straggler_row
from traceview.tables import NULL
from traceview.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE

STRAGGLER, COMMUNICATION, CPU_LAUNCH = "straggler", "communication", "cpu-launch"
_LIMIT_SHARE, _COMMUNICATION_SHARE, _WORTH_SAYING = 0.05, 0.30, 0.01
_MOST_NAMED = 2


def verdict_of(job: JobFacts, heat: HeatMap, findings: Sequence[Finding] = ()) -> JobVerdict:
    """The verdict on a job."""
    steady = np.flatnonzero(job.steps.steady & (heat.duration_ns != NULL).all(axis=0))
    longest = heat.duration_ns[:, steady].max(axis=0) if len(steady) else steady
    median = int(np.median(longest)) if len(steady) else None
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
    phrases = [*_phrases(job, len(steady), median, busy, waiting)]
    if paced:
        phrases.append("the CPU sets the pace")
    return JobVerdict(
        text=" · ".join(phrases),
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
    )


def _limit(job: JobFacts, saved_ns: int, exposed: float, *, paced: bool) -> str:
    if job.span_ns and saved_ns >= _LIMIT_SHARE * job.span_ns:
        return STRAGGLER
    if paced:
        return CPU_LAUNCH
    if exposed >= _COMMUNICATION_SHARE:
        return COMMUNICATION
    known = Counter(rank.limit for rank in job.ranks if rank.limit != "unknown")
    return known.most_common(1)[0][0] if known else "unknown"


def _phrases(
    job: JobFacts, steps: int, median: int | None, busy: float | None, waiting: float | None
) -> Iterator[str]:
    yield units.counted(len(job.ranks), "rank")
    if median is not None:
        yield f"{units.counted(steps, 'steady step')} of {units.duration(median)}"
    else:
        yield f"no common steps in {units.duration(job.span_ns)}"
    if busy is not None:
        yield f"GPU busy {units.percent(busy)}"
    if waiting is not None and waiting >= _WORTH_SAYING:
        yield f"{units.percent(100.0 * waiting)} of the time waiting for later ranks"
    yield from _late(job)


def _late(job: JobFacts) -> Iterator[str]:
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
