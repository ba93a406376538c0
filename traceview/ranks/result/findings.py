"""The findings of a job: few, about time that its ranks lose together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.findings import SEVERITIES, Evidence, Finding, Subject, severity_of, share_pct
from traceview.ranks.figures import KINDS
from traceview.ranks.lateness import GPU_WORK
from traceview.ranks.matching import Inconsistency
from traceview.ranks.process_groups import ranks_text
from traceview.ranks.result.communication import exposed_communication, small_messages
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.result.group_rows import GroupCalls
from traceview.ranks.result.rank_rows import straggler_row
from traceview.ranks.result.slower_kernels import LongerClass, longer_class
from traceview.ranks.result.wording import activity_of_rank, remedy
from traceview.ranks.stragglers import Straggler, launched_per_step
from traceview.tables import Table
from traceview.units import Value
from traceview.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE

_PACE, _MOST_OF_IT = 0.85, 0.8


def findings_of(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> tuple[Finding, ...]:
    """The findings, the worst first."""
    findings = [
        *(_inconsistent(job, each) for each in job.inconsistencies),
        *(each for one in job.stragglers if (each := _straggler(job, one)) is not None),
        *_cpu_bound(job),
        *small_messages(job, tables, calls),
        *exposed_communication(job, tables, calls),
    ]
    return tuple(sorted(findings, key=_order))


def _order(each: Finding) -> tuple[int, bool, int]:
    """The sort key, worst first; of one severity, inconsistent ranks come before lost time."""
    return SEVERITIES.index(each.severity), each.time_at_stake_ns > 0, -each.time_at_stake_ns


def _numbers(job: JobFacts, places: Sequence[int]) -> str:
    return ranks_text([job.ranks[place].name.rank for place in places])


def _inconsistent(job: JobFacts, each: Inconsistency) -> Finding:
    values: dict[str, Value] = {
        "ranks": _numbers(job, each.ranks),
        "kind": KINDS[each.kind],
        "other_ranks": _numbers(job, each.others),
        "other_kind": KINDS[each.other_kind],
        "number": each.at + 1,
    }
    one, other = "{kind}", "{other_kind}"
    if each.bytes >= 0 and each.other_bytes >= 0:
        values |= {"bytes": each.bytes, "other_bytes": each.other_bytes}
        one, other = "{kind} of {bytes}", "{other_kind} of {other_bytes}"
    several, others = len(each.ranks) > 1, len(each.others) > 1
    template = (
        f"{'Ranks' if several else 'Rank'} {{ranks}} call{'' if several else 's'} {one} as number "
        f"{{number}} of a communicator, {'ranks' if others else 'rank'} {{other_ranks}} "
        f"call{'' if others else 's'} {other}."
    )
    return Finding(
        "high",
        template,
        "Make all ranks of a process group call the same collectives in the same order and size.",
        subject=Subject("rank", f"rank {_numbers(job, each.others[:1])}"),
        evidence=Evidence(values),
        cause="inconsistent-collectives",
    )


def _straggler(job: JobFacts, each: Straggler) -> Finding | None:
    severity = severity_of(each.saved_ns, job.span_ns)
    if severity is None:
        return None
    own, place, others = job.ranks[each.rank], each.place, len(job.ranks) - 1
    values = _straggler_values(job, each)
    why, why_values = _why(job, each)
    values |= why_values
    when = "is late by {late_median_ns}" + (" in {steps}" if "steps" in values else "")
    if each.is_once:
        severity = "medium" if severity == "high" else "low"
        when = "is late once, by {late_median_ns} in {steps}, {late_share_pct} of the time"
        values["late_share_pct"] = share_pct(each.saved_ns, job.span_ns)
    whom = (
        "The other {others:rank} wait {wait_ns} each"
        if others > 1
        else "The other rank waits {wait_ns}"
    )
    return Finding(
        severity,
        f"Rank {{rank}} {when}: {why}. {whom} in {{kind}}.",
        remedy(each),
        each.saved_ns,
        Subject(
            "rank",
            f"rank {own.name.rank}",
            (place.file or None) if place else None,
            (place.line or None) if place else None,
        ),
        Evidence(values, "stragglers", {"rank": own.name.rank}),
        None if each.is_once else share_pct(each.saved_ns, job.span_ns),
        cause=each.cause,
        saving="about" if each.is_estimate else "at-most",
    )


def _straggler_values(job: JobFacts, each: Straggler) -> dict[str, Value]:
    row, own, others = straggler_row(job, each), job.ranks[each.rank], len(job.ranks) - 1
    late_steps = max(int(each.late.sum()), 1)
    values: dict[str, Value] = {
        "rank": own.name.rank,
        "late_median_ns": row["late_median_ns"],
        "others": others,
        "wait_ns": each.others_wait_ns // (others * late_steps),
        "kind": KINDS[each.kind],
        "path": own.path,
    }
    if row["steps"] is not None:
        values["steps"] = row["steps"]
    if each.place is not None and each.place.text:
        values["place"] = each.place.text
    return values


def _why(job: JobFacts, each: Straggler) -> tuple[str, dict[str, Value]]:
    """Why a rank is late, as a clause, and the figures in it."""
    if each.cause == GPU_WORK:
        return _works_longer(longer_class(job, each))
    if each.more_work:
        return _launches(job, each)
    return activity_of_rank(each.cause, each.place), {}


def _works_longer(longer: LongerClass | None) -> tuple[str, dict[str, Value]]:
    """Why the GPU of a rank works longer, as a clause, and the figures in it."""
    if longer is None:
        return "its GPU works longer between collectives", {}
    values: dict[str, Value] = {"work_factor": longer.factor}
    if longer.all_slower:
        return "all its kernels take {work_factor} as long as on other ranks", values
    values |= {"kernel_class": longer.kind, "more_ns": longer.more_ns}
    if longer.more_ns >= _MOST_OF_IT * longer.whole_ns:
        return "its {kernel_class} kernels take {more_ns} more per step", values
    values["work_ns"] = longer.whole_ns
    return "its kernels take {work_ns} more per step, {kernel_class} most ({more_ns})", values


def _launches(job: JobFacts, each: Straggler) -> tuple[str, dict[str, Value]]:
    """The clause for a rank whose CPU launches more than other ranks' CPUs, and its figures."""
    late = {one.rank for one in job.stragglers}
    others = [launched_per_step(r)[0] for p, r in enumerate(job.ranks) if p not in late]
    values: dict[str, Value] = {
        "launches": round(launched_per_step(job.ranks[each.rank])[0]),
        "usual_launches": round(float(np.median(others))) if others else None,
    }
    whose = "that of the other" if len(others) == 1 else "those of the others"
    return f"its CPU launches {{launches:kernel}} per step, {whose} {{usual_launches}}", values


def _cpu_bound(job: JobFacts) -> Iterator[Finding]:
    """A finding where the CPU, not the GPU, sets the pace of the step on most ranks."""
    if job.needs is None or len(job.ranks) < 2:  # the report of one rank has its own findings
        return
    cpu, gpu = (job.needs.mean_ns(each) for each in (job.needs.cpu_ns, job.needs.gpu_ns))
    step_ns = float(np.nanmean(job.needs.duration_ns))
    bound = (cpu >= _PACE * step_ns) & (gpu <= _PACE * cpu)
    if 2 * bound.sum() <= len(bound):
        return
    steps = int(job.steps.steady.sum())
    saved_ns = round(max(step_ns - float(np.nanmax(gpu)), 0.0)) * steps
    severity = severity_of(saved_ns, job.span_ns)
    if severity is None:
        return
    values: dict[str, Value] = {
        "ranks": int(bound.sum()),
        "gpu_ns": round(float(np.nanmedian(gpu))),
        "cpu_ns": round(float(np.nanmedian(cpu[bound]))),
        "step_ns": round(step_ns),
    }
    which = "all {ranks:rank}" if bound.all() else "{ranks:rank}"
    if bound.all() and len(bound) == 2:
        which = "both ranks"
    yield Finding(
        severity,
        f"The CPU sets the pace on {which}: it needs {{cpu_ns}} of a mean step of {{step_ns}}, the "
        "GPU {gpu_ns} without waits.",
        "Launch less per step with CUDA graphs or torch.compile, or give each launch more work, as "
        "with a larger batch. The report of one rank shows where the CPU spends the time.",
        saved_ns,
        Subject("rank", f"rank {job.ranks[int(np.argmax(bound))].name.rank}"),
        Evidence(values, "ranks", {"rank": job.ranks[int(np.argmax(bound))].name.rank}),
        share_pct(saved_ns, job.span_ns),
        cause=CAUSE_NAMES[LAUNCH_LATE],
        general=True,
    )
