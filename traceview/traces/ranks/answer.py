"""The answer for a job, from the figures of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from traceview.base.failures import AnswerParts
from traceview.base.tables import NULL, Cell
from traceview.traces.analyses.base import Result
from traceview.traces.ranks import critical_path, job_findings, job_replay, rank_rows
from traceview.traces.ranks.clocks import align_clocks, matched_communicators
from traceview.traces.ranks.figures import RankFigures
from traceview.traces.ranks.job import FailedRank, JobReport
from traceview.traces.ranks.job_facts import (
    JobFacts,
    collectives_table,
    group_calls,
    groups_table,
    heat_map,
    waits_by_row,
)
from traceview.traces.ranks.lateness import CommonSteps, common_steps, lateness, needs_of
from traceview.traces.ranks.matching import match_ranks
from traceview.traces.ranks.process_groups import process_groups
from traceview.traces.ranks.stragglers import stragglers


def job_report(ranks: Sequence[RankFigures], failed: Sequence[FailedRank] = ()) -> JobReport:
    """The ranks of a job side by side: who waits for whom, why, and what that costs.

    `ranks` have different numbers; `failed` are the recordings that gave no figures.
    """
    parts = AnswerParts()
    job = job_facts(ranks, parts)
    heat, calls = heat_map(job), [group_calls(job, of) for of in job.groups]
    tables = {
        "ranks": rank_rows.ranks_table(job),
        "stragglers": rank_rows.stragglers_table(job),
        "critical_path": rank_rows.path_table(job),
        "groups": groups_table(job, calls),
        "collectives": collectives_table(job, calls),
        "rank_steps": rank_rows.steps_table(job, heat),
    }
    findings = parts.part("findings", partial(job_findings.findings_of, job, tables, calls), ())
    return JobReport(
        ranks=job.ranks,
        failed=tuple(failed),
        result=Result(tables, findings, _summary(job), tuple(_notes(job))),
        verdict=rank_rows.verdict_of(job, heat, findings),
        clocks=job.clocks,
        heat=heat,
        matched=job.matched,
        warnings=parts.warnings,
    )


def job_facts(ranks: Sequence[RankFigures], parts: AnswerParts | None = None) -> JobFacts:
    """The facts of the job from the collectives of its ranks; `parts` contains failures."""
    parts = parts or AnswerParts()
    ordered = tuple(sorted(ranks, key=lambda rank: rank.name.rank))
    matching = match_ranks(ordered)
    clocks = align_clocks(ordered, matching.matched)
    matched = matched_communicators(ordered, matching.matched, clocks)
    steps = common_steps(ordered, matched)
    needs = needs_of(ordered, matched, steps)
    late = lateness(ordered, matched, steps, needs)
    span_ns = steady_span_ns(ordered, steps)
    facts = JobFacts(
        ranks=ordered,
        matched=matched,
        inconsistencies=matching.inconsistencies,
        clocks=clocks,
        steps=steps,
        late=late,
        stragglers=(),
        groups=process_groups(ordered, matched),
        path=parts.part(
            "critical path", partial(critical_path.critical_path, ordered, matched, steps), None
        ),
        span_ns=span_ns,
        wait_ns=waits_by_row(ordered, matched),
        needs=needs,
    )
    # Where most collectives have no name, a few that fit by chance show nothing.
    count = sum(map(len, facts.wait_ns))
    if 2 * facts.unnamed <= count or 2 * facts.unmatched <= facts.unnamed:
        find = partial(stragglers, ordered, matched, late, span_ns, needs)
        facts = replace(facts, stragglers=parts.part("late ranks", find, ()))
    return parts.part("savings", partial(job_replay.with_savings, facts), facts)


def steady_span_ns(ranks: Sequence[RankFigures], steps: CommonSteps) -> int:
    """The median rank's time in the steady steps that all ranks have; 0 without ranks.

    Without such steps, the median rank's whole steady time.
    """
    shared = np.flatnonzero(steps.steady & (steps.row >= 0).all(axis=0))
    spans = [
        int(each.steps.duration_ns[steps.row[place, shared]].sum()) if len(shared) else each.span_ns
        for place, each in enumerate(ranks)
    ]
    return int(np.median(spans)) if spans else 0


def _summary(job: JobFacts) -> dict[str, Cell]:
    errors = job.clocks.error_ns[job.clocks.error_ns != NULL]
    return {
        "ranks": len(job.ranks),
        "steady_steps": int(job.steps.steady.sum()),
        "collectives": sum(of.rows.shape[1] for of in job.matched),
        "stragglers": len(job.stragglers),
        "clock_error_ns": int(errors.max()) if len(errors) else None,
    }


def _notes(job: JobFacts) -> Iterator[str]:
    """Notes on what is not known, and how to record it."""
    count = sum(len(rank.collectives) for rank in job.ranks)
    if not count:
        yield "No rank exchanges data with others on its GPU, so nothing tells who waits for whom."
        return
    if not job.has_waits:
        yield (
            "Which rank waits for which is unknown, because no collective has a counterpart on "
            "another rank. Record all ranks at the same time and pass all their recordings."
        )
    if job.has_waits and 2 * job.unmatched > count:
        yield f"The waits of {job.unmatched:,} of {count:,} collectives are unknown."
    if job.unnamed == count:
        yield (
            "The communicators of collectives are not in the recordings, so they are matched by "
            f"their order. {_record(job)}"
        )
    sizes = sum(int((rank.collectives.bytes < 0).sum()) for rank in job.ranks)
    if sizes == count and job.unnamed < count:
        yield f"The sizes of collectives are not in the recordings. {_record(job)}"
    if job.replay_note:
        yield job.replay_note
    if not len(job.steps.names):
        yield "No steps were found, so figures are of whole recordings: mark steps by ranges."


def _record(job: JobFacts) -> str:
    if job.ranks[0].recorder == "nsys":
        return (
            "NCCL writes them into its NVTX ranges: record with --trace=cuda,nvtx and export with "
            "--include-blobs=true, or use traceview record."
        )
    return "torch 2.3 and newer write them for collectives of torch.distributed."
