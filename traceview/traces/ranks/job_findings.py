"""The findings of a job: few, about time that its ranks lose together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceview.base import groups
from traceview.base.findings import (
    SEVERITIES,
    Evidence,
    Finding,
    Subject,
    sentence,
    severity_of,
    share_pct,
)
from traceview.base.tables import Cell, Integers, Table
from traceview.base.units import Value
from traceview.base.vocabulary import causes
from traceview.base.vocabulary.activities import ACTIVITIES
from traceview.traces.ranks import lateness, matching, process_groups, rank_rows, stragglers
from traceview.traces.ranks.figures import KINDS, Place
from traceview.traces.ranks.job_facts import GroupCalls, JobFacts

# Clauses on what a late rank does, and remedies.


def activity_of_rank(cause: str, place: Place | None) -> str:
    """A clause with `{place}` in it where the place is known: `its CPU sleeps in {place}`."""
    where = " in {place}" if place is not None and place.text else ""
    if cause == causes.CAUSE_NAMES[causes.LAUNCH_LATE] or (
        cause == causes.CAUSE_NAMES[causes.SYNC_DRAIN] and where
    ):
        does = (activity.rank for activity in ACTIVITIES if place and activity.name == place.what)
        verb = next(does, "") or ("works" if where else "")
        return f"its CPU {verb}{where}" if verb else "its CPU launches work late"
    does = (idle_cause.rank for idle_cause in causes.CAUSES if idle_cause.name == cause)
    return f"{next(does, 'its GPU is idle')}{where}"


def remedy(late: stragglers.Straggler) -> str:
    """The remedy for a late rank, an imperative with the fields of its finding."""
    if late.is_once:
        return "Record more steps: one pause does not tell whether it comes again, and how often."
    if late.more_work:
        return "Share the work evenly: balance batch sizes, tokens per expert or layers per stage."
    if late.cause == lateness.GPU_WORK:
        return (
            "Check the clock and the temperature of the GPU of rank {rank}, or give it less work."
        )
    if late.cause == causes.CAUSE_NAMES[causes.DEPENDENCY]:
        return (
            "Read the report of rank {rank} alone (--rank {rank}): its CPU launches in time. Look "
            "at what the queued work waits for, and whether another process uses that GPU."
        )
    if late.place is not None and late.place.text:
        return (
            "Move what rank {rank} does in {place} out of the step, or let all ranks do it at once."
        )
    return "Read the report of rank {rank} alone: run the same command with --rank {rank}."


# Findings on communication: many small messages, and transfers that compute does not hide.

SMALL_BYTES, MANY_PER_STEP = 1 << 20, 50
"""At 1 MiB two H200 reached a quarter of the bandwidth of 256 MiB (tests/data/collectives)."""
_SMALL_SHARE, _EXPOSED_SHARE = 0.05, 0.10


def small_messages(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> Iterator[Finding]:
    """Many small collectives per step: a finding for the kind and size with most exposed time."""
    steps = max(int(job.steps.steady.sum()), 1)
    small = [
        (_exposed_ns(job, row, calls), row)
        for row in tables["collectives"].rows()
        if row["bytes"] is not None
        and row["calls_per_step"] is not None
        and row["transfer_ns"] is not None
        and int(row["bytes"]) <= SMALL_BYTES
        and float(row["calls_per_step"]) >= MANY_PER_STEP
    ]
    if not small:
        return
    exposed_ns, row = max(small, key=lambda of: of[0])
    exposed_ns = min(exposed_ns, job.span_ns)
    severity = severity_of(exposed_ns, job.span_ns)
    if severity is None or exposed_ns < _SMALL_SHARE * job.span_ns:
        return
    values: dict[str, Value] = {
        "calls": round(float(row["calls_per_step"] or 0)),
        **{name: row[name] for name in ("kind", "group", "bytes")},
        "exposed_ns": exposed_ns // steps,
        "bus_bytes_per_s": row["bus_bytes_per_s"],
    }
    yield Finding(
        severity,
        sentence(
            "{calls:call} of {kind} with {bytes} each take {exposed_ns} of a step without "
            "computing[, at {bus_bytes_per_s}].",
            values,
        ),
        "Exchange more per call: larger buckets (of DistributedDataParallel: bucket_cap_mb), or "
        "one call for several tensors.",
        exposed_ns,
        Subject("collective", str(row["kind"])),
        Evidence(values, "collectives", {key: row[key] for key in ("group", "kind", "bytes")}),
        share_pct(exposed_ns, job.span_ns),
        cause="small-messages",
    )


def _exposed_ns(job: JobFacts, row: dict[str, Cell], calls: Sequence[GroupCalls]) -> int:
    """The exposed time of the collectives of a row in steady steps, per rank."""
    of = calls[next(place for place, each in enumerate(job.groups) if each.label == row["group"])]
    own = (of.bytes == row["bytes"]) & (of.kind == KINDS.index(str(row["kind"])))
    own &= np.isin(of.step, np.flatnonzero(job.steps.steady))
    ranks = max(len(set(of.rank[own].tolist())), 1)
    return int(_exposed_transfers(of)[own].sum()) // ranks


def _exposed_transfers(calls: GroupCalls) -> Integers:
    """An upper bound of each call's time without compute and without waiting."""
    return np.minimum(calls.exposed_ns, calls.duration_ns - np.maximum(calls.wait_ns, 0))


_OVERLAP = (
    "Overlap it with compute: start each collective as soon as its data is ready, on a stream of "
    "its own. Or exchange fewer bytes."
)
_SHRINK = (
    "Exchange fewer bytes in that call: only the part of the result that is used, or a smaller "
    "type. Overlap the rest with compute."
)


_WAITED = (
    " {more_ns} of it is more than the fastest calls of the same size take: most likely a wait for "
    "the other side, or for another process on these GPUs."
)
_RECORD_MORE = (
    "Record several steps after a warm-up, and see what else runs on these GPUs (nvidia-smi): "
    "neither fewer bytes nor overlap shortens a wait."
)


def _beyond_fastest_ns(job: JobFacts, place: int, calls: Sequence[GroupCalls]) -> int:
    """What a rank's transfers in steady steps take beyond the fastest call of their size."""
    steady, more_ns = np.flatnonzero(job.steps.steady), 0
    for group in calls:
        alike = groups.group(group.kind, group.bytes)
        fastest = np.full(alike.size, np.iinfo(np.int64).max)
        np.minimum.at(fastest, alike.ids, group.duration_ns)
        own = (group.rank == place) & (group.bytes >= 0)
        own &= np.isin(group.step, steady) | (not job.steps.names)
        beyond_ns = np.maximum(_exposed_transfers(group) - fastest[alike.ids], 0)
        more_ns += int(beyond_ns[own].sum())
    return more_ns


def exposed_communication(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> Iterator[Finding]:
    """Exposed communication of the median rank, without waits, as a finding."""
    waiting = [row for row in tables["ranks"].rows() if row["wait_ns"] is not None]
    if not waiting or not len(tables["collectives"]):
        return
    row = sorted(waiting, key=_transfer_ns)[(len(waiting) - 1) // 2]
    place = next(p for p, each in enumerate(job.ranks) if each.name.rank == row["rank"])
    steps, transfer_ns = job.steady_count(place), _transfer_ns(row)
    whole_ns = job.ranks[place].span_ns // steps
    severity = severity_of(transfer_ns * steps, job.ranks[place].span_ns)
    if severity is None or transfer_ns < _EXPOSED_SHARE * whole_ns:
        return
    which = "Both ranks exchange data" if len(job.ranks) == 2 else "Most ranks exchange data"
    of = "of a mean step of" if job.steps.names else "of"
    most, values = _most_exposed(job, tables, calls)
    # Of one pass. In steps, a long call may wait for a reason that is not known.
    longest_ns = max(int(_exposed_transfers(group).max(initial=0)) for group in calls)
    single = not job.steps.names and 2 * longest_ns > transfer_ns
    if single:
        most, values = f"{most}: {{call_ns}} in a single call", {**values, "call_ns": longest_ns}
    more_ns = _beyond_fastest_ns(job, place, calls) // steps
    # Where most of it waits, nothing is known to save it.
    waits = not single and 2 * more_ns > transfer_ns
    if waits:
        severity = "medium" if severity == "high" else severity
        values |= {"more_ns": more_ns}
    yield Finding(
        severity,
        f"{which} for {{transfer_ns}} or more {of} {{step_ns}} without computing{most}."
        + _WAITED * waits,
        _SHRINK if single else _RECORD_MORE if waits else _OVERLAP,
        0 if waits else transfer_ns * max(int(job.steps.steady.sum()), 1),
        Subject("rank", f"rank {row['rank']}"),
        Evidence(
            {"rank": row["rank"], "transfer_ns": transfer_ns, "step_ns": whole_ns, **values},
            "ranks",
            {"rank": row["rank"]},
        ),
        None if waits else share_pct(transfer_ns, whole_ns),
        cause="exposed-communication",
        general=True,
    )


def _transfer_ns(row: dict[str, Cell]) -> int:
    return max(int(row["exposed_ns"] or 0) - int(row["wait_ns"] or 0), 0)


def _most_exposed(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> tuple[str, dict[str, Value]]:
    """The kind with most exposed time and its group's bandwidth, as the end of a sentence."""
    exposed = [np.bincount(group.kind, _exposed_transfers(group), len(KINDS)) for group in calls]
    of = int(np.argmax([times.max() for times in exposed]))
    group = next(row for row in tables["groups"].rows() if row["group"] == job.groups[of].label)
    values: dict[str, Value] = {"kind": KINDS[int(np.argmax(exposed[of]))]}
    if group["link_pct"] is None:
        return ", most of it in {kind}", values
    values |= {name: group[name] for name in ("bus_bytes_per_s", "link_pct", "link")}
    return ", most of it in {kind} at {bus_bytes_per_s}, {link_pct} of {link}", values


def shared_waits(job: JobFacts) -> Iterator[Finding]:
    """What ranks wait for each other where none is always the last, since their work is uneven."""
    late_by = job.late.parts_ns.sum(axis=(0, 1))
    if (
        job.stragglers
        or not job.has_waits
        or not late_by.any()
        or late_by.argmax() != lateness.LATE_CAUSES.index(lateness.GPU_WORK)
    ):
        return
    kinds = range(len(KINDS))
    by_kind = np.array([
        [job.steady_ns(rank, waits * (own.collectives.kind == kind)) // job.steady_count(rank)
         for kind in kinds]
        for rank, own in enumerate(job.ranks)
        for waits in [job.exposed_wait_ns(rank)]
    ])  # fmt: skip
    steps = max(int(job.steps.steady.sum()), 1)
    place = int(np.argsort(by_kind.sum(axis=1))[len(by_kind) // 2])
    of_kind, rank = by_kind[place], job.ranks[place].name.rank
    wait_ns, step_ns = int(of_kind.sum()), job.span_ns // steps
    severity = severity_of(wait_ns, step_ns)
    if severity is None or wait_ns < _EXPOSED_SHARE * step_ns:
        return
    most = [int(kind) for kind in np.argsort(-of_kind)[:2] if of_kind[kind]]
    values: dict[str, Value] = {"wait_ns": wait_ns, "step_ns": step_ns}
    for at, kind in enumerate(most):
        values |= {f"kind_{at}": KINDS[kind], f"kind_{at}_ns": int(of_kind[kind])}
    parts = ", ".join(f"{{kind_{at}_ns}} in {{kind_{at}}}" for at in range(len(most)))
    what = "batch sizes, lengths, or tokens per expert (replicate busy experts)"
    yield Finding(
        severity,
        f"Ranks wait {{wait_ns}} of a step of {{step_ns}} for the last one to arrive (median): "
        f"{parts}. No rank is always last: their work between collectives is uneven.",
        f"Share the work evenly: {what}. Or let each rank work on another micro-batch meanwhile.",
        wait_ns * steps,
        Subject("rank", f"rank {rank}"),
        Evidence(values, "ranks", {"rank": rank}),
        share_pct(wait_ns, step_ns),
        cause="uneven-work",
        general=True,
    )


_PACE, _MOST_OF_IT = 0.85, 0.8


def findings_of(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> tuple[Finding, ...]:
    """The findings, the worst first."""
    findings = [
        *(_inconsistent(job, inconsistency) for inconsistency in job.inconsistencies),
        *(each for one in job.stragglers if (each := _straggler(job, one)) is not None),
        *(each for one in job.stragglers if (each := _own_loss(job, one)) is not None),
        *_cpu_bound(job),
        *_cold(job),
        *shared_waits(job),
        *small_messages(job, tables, calls),
        *exposed_communication(job, tables, calls),
    ]
    # Of one severity, inconsistent ranks come before lost time.
    findings.sort(key=lambda of: of.time_at_stake_ns, reverse=True)
    findings.sort(key=lambda of: (SEVERITIES.index(of.severity), of.time_at_stake_ns > 0))
    return tuple(findings)


def _cold(job: JobFacts) -> Iterator[Finding]:
    """A finding where every rank recorded first passes alone."""
    cold = [(each, rank) for rank in job.ranks if (each := rank.cold)]
    if not cold or len(cold) < len(job.ranks):
        return
    least, rank = min(cold, key=lambda of: of[0].once_ns / max(of[0].total_ns, 1))
    told = all(each.total_ns and not each.uneven_ns for each, _ in cold)
    times: dict[str, Value] = {"once_ns": least.once_ns, "total_ns": least.total_ns}
    values = times if told else {}
    yield Finding(
        "high",
        sentence(
            "The recording is cold on every rank, so it does not tell how later passes run[: at "
            "least {once_ns} of {total_ns} are first uses and compilation].",
            values,
        ),
        "Warm up before the recording, with every kind of pass, and record several steps.",
        subject=Subject("rank", f"rank {rank.name.rank}"),
        evidence=Evidence(values, "ranks", {"rank": rank.name.rank}),
        cause="first-uses",
    )


def _numbers(job: JobFacts, places: Sequence[int]) -> str:
    return process_groups.ranks_text([job.ranks[place].name.rank for place in places])


def _inconsistent(job: JobFacts, each: matching.Inconsistency) -> Finding:
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
    counts = {"several": len(each.ranks), "others": len(each.others)}
    return Finding(
        "high",
        sentence(
            f"{{several?Rank|Ranks}} {{ranks}} {{several?calls|call}} {one} as number {{number}} "
            "of a communicator, {others?rank|ranks} {other_ranks} {others?calls|call} "
            f"{other}.",
            counts,
        ),
        "Make all ranks of a process group call the same collectives in the same order and size.",
        subject=Subject("rank", f"rank {_numbers(job, each.others[:1])}"),
        evidence=Evidence(values),
        cause="inconsistent-collectives",
    )


def _straggler(job: JobFacts, late: stragglers.Straggler) -> Finding | None:
    severity = severity_of(late.saved_ns, job.span_ns)
    if severity is None:
        return None
    name, place = job.ranks[late.rank].name.rank, late.place
    why, why_values = _why(job, late)
    values = {**_straggler_values(job, late), **why_values}
    when = "is late by {late_median_ns}" + (" in {steps}" if "steps" in values else "")
    if late.is_once:
        severity = "medium" if severity == "high" else "low"
        when = "is late once, by {late_median_ns} in {steps}, {late_share_pct} of the time"
        values["late_share_pct"] = share_pct(late.saved_ns, job.span_ns)
    whom = "The other rank waits {wait_ns}"
    if len(job.ranks) > 2:
        whom = "The other {others:rank} wait {wait_ns} each"
    return Finding(
        severity,
        f"Rank {{rank}} {when}: {why}. {whom} in {{kind}}.",
        remedy(late),
        late.saved_ns,
        Subject(
            "rank",
            f"rank {name}",
            (place.file or None) if place else None,
            (place.line or None) if place else None,
        ),
        Evidence(values, "stragglers", {"rank": name}),
        None if late.is_once else share_pct(late.saved_ns, job.span_ns),
        cause=late.cause,
        saving="at-most" if late.error_ns is None else "about",
        error_ns=late.error_ns,
    )


_MORE_THAN_LATE = 1.2
"""Times what the job wins if a rank is no longer late: less than that is the same story."""


def _own_loss(job: JobFacts, late: stragglers.Straggler) -> Finding | None:
    """What makes a rank late, by its own report, where that wins more than to be no longer late.

    Sharing its work with the others leaves the work as slow as it is. The job wins no more than
    what the other ranks wait.
    """
    own, placed = job.ranks[late.rank], late.place is not None and late.place.text
    first = next(iter(own.findings), None)
    if first is None or late.is_once or (placed and not late.more_work):
        return None
    others = [place for place in range(len(job.ranks)) if place != late.rank]
    waits = [job.steady_ns(place, job.exposed_wait_ns(place)) for place in others]
    saved_ns = min(round((first.share_of_step_pct or 0.0) / 100 * job.span_ns), *waits)
    severity = severity_of(saved_ns, job.span_ns)
    is_more = saved_ns > _MORE_THAN_LATE * late.saved_ns + (late.error_ns or 0)
    if first.cause != late.cause or first.severity == "info" or not is_more or not severity:
        return None
    values = _straggler_values(job, late)
    when = "late by {late_median_ns}" + (" in {steps}" if "steps" in values else "")
    return Finding(
        max(severity, first.severity, key=SEVERITIES.index),
        f"Rank {{rank}}, {when}, is slow by itself: {_quoted(first.message, values)}",
        first.action,
        saved_ns,
        Subject("rank", f"rank {own.name.rank}"),
        Evidence(values, "stragglers", {"rank": own.name.rank}),
        share_pct(saved_ns, job.span_ns),
        cause=late.cause,
    )


def _straggler_values(job: JobFacts, late: stragglers.Straggler) -> dict[str, Value]:
    row, own, others = rank_rows.straggler_row(job, late), job.ranks[late.rank], len(job.ranks) - 1
    late_steps = max(int(late.late.sum()), 1)
    values: dict[str, Value] = {
        "rank": own.name.rank,
        "late_median_ns": row["late_median_ns"],
        "others": others,
        "wait_ns": late.others_wait_ns // (others * late_steps),
        "kind": KINDS[late.kind],
        "path": own.path,
    }
    if row["steps"] is not None:
        values["steps"] = row["steps"]
    if late.place is not None and late.place.text:
        values["place"] = late.place.text
    return values


def _why(job: JobFacts, late: stragglers.Straggler) -> tuple[str, dict[str, Value]]:
    """Why a rank is late, as a clause, and the figures in it."""
    if late.cause == lateness.GPU_WORK:
        return _works_longer(rank_rows.longer_class(job, late))
    if not late.more_work:
        return activity_of_rank(late.cause, late.place), {}
    late_ranks = {one.rank for one in job.stragglers}
    others = [
        stragglers.launched_per_step(figures)[0]
        for place, figures in enumerate(job.ranks)
        if place not in late_ranks
    ]
    values: dict[str, Value] = {
        "launches": round(stragglers.launched_per_step(job.ranks[late.rank])[0]),
        "usual_launches": round(float(np.median(others))) if others else None,
    }
    whose = "that of the other" if len(others) == 1 else "those of the others"
    return f"its CPU launches {{launches:kernel}} per step, {whose} {{usual_launches}}", values


def _works_longer(longer: rank_rows.LongerClass | None) -> tuple[str, dict[str, Value]]:
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


_OF_IDLE = ("gpu-idle", "sync-stalls")
_LAUNCH_LESS = (
    "Launch less per step with CUDA graphs or torch.compile, or give each launch more work, as "
    "with a larger batch. The report of one rank shows where the CPU spends the time."
)


def _quoted(text: str, values: Mapping[str, Value]) -> str:
    """A sentence of a rank's report behind a colon: `the GPU sat idle`, but `GPU 1 sat idle`.

    It may quote a line of the program with `{ranks}`, which is no field of ours.
    """
    for name in values:
        text = text.replace(f"{{{name}}}", f"{{ {name} }}")
    return text[0].lower() + text[1:] if text[1:2].islower() else text


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
    slowest = job.ranks[int(np.argmax(bound))]
    rank = slowest.name.rank
    # What that rank's own report says first of its idle GPU, which may not be about launches.
    found = next((each for each in slowest.findings if each.analysis in _OF_IDLE), None)
    values: dict[str, Value] = {
        "ranks": int(bound.sum()),
        "gpu_ns": round(float(np.nanmedian(gpu))),
        "cpu_ns": round(float(np.nanmedian(cpu[bound]))),
        "step_ns": round(step_ns),
    }
    of_rank = f" On rank {rank}: {_quoted(found.message, values)}" if found else ""
    which = "all {ranks:rank}" if bound.all() else "{ranks:rank}"
    if bound.all() and len(bound) == 2:
        which = "both ranks"
    yield Finding(
        severity,
        f"The CPU sets the pace on {which}: it needs {{cpu_ns}} of a mean step of {{step_ns}}, the "
        f"GPU {{gpu_ns}} without waits.{of_rank}",
        found.action if found and found.action else _LAUNCH_LESS,
        saved_ns,
        Subject("rank", f"rank {rank}"),
        Evidence(values, "ranks", {"rank": rank}),
        share_pct(saved_ns, job.span_ns),
        cause=causes.CAUSE_NAMES[causes.LAUNCH_LATE],
        general=True,
    )
