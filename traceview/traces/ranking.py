"""Order of the findings of a report: worst first, each loss once, at most seven above `info`.

Findings whose remedies can be replayed are ordered by a plan (see traceview.traces.plan).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceview.base import intervals
from traceview.base.findings import (
    LOW,
    MEDIUM,
    SEVERITIES,
    Edit,
    Finding,
    LoopTime,
    LostTime,
    Subject,
    forecast,
    prefixed,
    severity_of,
    share_pct,
)
from traceview.base.intervals import Intervals
from traceview.base.vocabulary.causes import Limit
from traceview.traces.analyses import (
    base,
    gpu_idle,
    kernel_share,
    memory_copies,
    phases,
    run_ahead,
    sync_stalls,
    trace_health,
)
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS as WAVES
from traceview.traces.facts.dependencies.replay import Changed
from traceview.traces.facts.forecast import Model, main_loop
from traceview.traces.plan import (
    RankedFinding,
    accidents,
    first_of,
    in_doubt,
    likely_ns,
    limit_of,
    planned,
    rank,
    whole,
)
from traceview.traces.rules import limit_sentence

Outcome = base.Result | base.Skipped

_MOST_OF_STEP_PCT = 50.0
MOST_ABOVE_INFO = 7
"""Most findings above `info`: nobody acts on more in one go."""


def ranked(
    outcomes: Mapping[str, Outcome],
    loops: Sequence[LoopTime] = (),
    time_of: Callable[[Finding], LostTime | None] = lambda finding: finding.lost,
    steady_ns: int | None = None,
    model: Callable[[], Model] | None = None,
    named: Sequence[Limit] = (),
) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by the time that acting on them is likely to save.

    With a `model`, findings with an edit are ordered, and get their severity, by what they win in
    the plan.

    A finding that puts the whole recording in doubt comes first. Each loss is reported once: of
    findings that share a cause, those of one analysis keep their severity; of findings on mostly
    the same time, or on the same kernel in one analysis, the first does. The others become `info`,
    as do all after the first seven. `loops` are the loops of the trace, `time_of` returns the time
    that a finding is about, and `steady_ns` is the longest steady time of a device, which bounds
    what a finding can save of it. `named` are the limits that the opening names: findings on them
    come before equal ones. With loops, the share of a finding is a share of a step, None where its
    time lies outside the steps.
    """
    findings = [
        RankedFinding(name, _within(finding, steady_ns), opening=[*named, limit].index(limit))
        for name, outcome in outcomes.items()
        if isinstance(outcome, base.Result)
        for finding in outcome.findings
        for limit in [limit_of(name, finding)]
    ]
    if model and steady_ns and any(row.finding.edit for row in findings):
        of = whole(model(), loops[0] if loops else None, steady_ns)
        times = of.per_ns * steady_ns / of.time_ns
        findings = [
            _with_limit(_replayed(row, model(), times, accidents(findings), bool(loops)), model())
            if _in_steps(row.finding, loops)
            else replace(row, finding=replace(row.finding, edit=None))
            for row in findings
        ]
    findings = [*_one_per_line(findings)]
    if not loops:
        findings = [*_behind_compilation(findings)]
    in_order = sorted(_with_leaders(_one_analysis_per_cause(findings)), key=rank)
    in_order = _worst_first([*_each_time_once(in_order)])
    in_order = [_forecast(row, loops, time_of, model) for row in in_order]
    if model and steady_ns and any(row.finding.edit for row in findings):
        in_order = planned(in_order, main_loop(model()), loops, steady_ns)
    in_order = [*_with_alternatives(in_order)]
    in_order[MOST_ABOVE_INFO:] = map(_as_info, in_order[MOST_ABOVE_INFO:])
    partial = (_partial(row, in_order[:place]) for place, row in enumerate(in_order))
    return tuple(_of_step(row) if loops else row for row in _with_kernel([*partial], steady_ns))


def _worst_first(findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """The findings in order. Of those that tie for the first place one is chosen."""
    rows = sorted(findings, key=rank)
    left = {at: row for at, row in enumerate(rows) if row.severity != "info" and not in_doubt(row)}
    if not left:
        return rows
    likely = {at: likely_ns(row.finding) for at, row in left.items()}
    severity = {at: SEVERITIES.index(row.severity) for at, row in left.items()}
    rows.insert(min(left), rows.pop(first_of(left, likely, severity)))
    return rows


def _with_kernel(in_order: Sequence[RankedFinding], steady_ns: int | None) -> list[RankedFinding]:
    """The findings; the note on the program's kernel before those that save little beside its time.

    It claims no saving, so high findings come first, but is what the time goes into, unless a
    finding that is not low says what its kernel loses. One with less than half of the steady time
    comes before low findings only.
    """
    rated = [row for row in in_order if row.severity != "info"]
    named = {row.finding.subject for row in rated if row.severity != "low"}
    notes = (row for row in in_order if row.analysis == kernel_share.ANALYSIS.name and row.action)
    notes = (row for row in notes if row.severity == "info" and row.finding.subject not in named)
    note = next((row for row in notes if row.finding.subject.kind == "kernel"), None)
    if note is None:
        return [*in_order]
    least_ns = note.finding.time_at_stake_ns
    is_most = not steady_ns or 2 * least_ns >= steady_ns
    before = [
        row
        for row in rated
        if row.severity == "high"
        or row.finding.time_at_stake_ns >= least_ns * (1 if row.finding.general else _OF_KERNEL)
        or (row.severity != "low" and (_without_saving(row) or not is_most))
    ]
    if len(before) == len(rated):
        return [*in_order]
    return [*before, note, *(row for row in in_order if row is not note and row not in before)]


def _runs_on(earlier: Sequence[RankedFinding]) -> bool:
    """Whether a finding is about high losses of the run that are no part of its steady time."""
    high = (each.finding for each in earlier if each.severity == "high")
    return any(each.time_at_stake_ns and each.share_of_step_pct is None for each in high)


def _without_saving(row: RankedFinding) -> bool:
    """Whether a finding is about more than the time to save: a doubt, or what sets the pace."""
    return row.analysis == trace_health.ANALYSIS.name or not row.finding.time_at_stake_ns


_OF_KERNEL = 0.5
"""Part of a kernel's time that a finding must save to come before it. Of a kernel with 76 % of the
GPU's time and a wait of 13.6 %, an expert begins with the kernel (a public recording)."""


def _forecast(
    row: RankedFinding,
    loops: Sequence[LoopTime],
    time_of: Callable[[Finding], LostTime | None],
    model: Callable[[], Model] | None,
) -> RankedFinding:
    """The finding with its forecast: of the loop in which an edit wins most.

    The same kernels take as long in steps that launch each and in those that replay a graph of
    them, but only the former gain the launches as well.
    """
    finding = row.finding
    when = time_of(finding) if loops else None
    if when and finding.edit and model and len(loops) > 1:
        won = model().saved_time(finding.edit)
        # What the finding is about outside of all steps, such as warm-up that runs late, stays so.
        steps = intervals.union(*map(np.concatenate, zip(*(x.time for x in loops), strict=True)))
        beside = intervals.without(when.time, steps)
        time = intervals.union(*map(np.concatenate, zip(won, beside, strict=True)))
        when = replace(when, time=time) if won.total() else when
    saving = forecast(finding, loops, when)
    if not saving or row.analysis == trace_health.ANALYSIS.name:
        return row
    return replace(row, forecast=saving)


def _of_step(row: RankedFinding) -> RankedFinding:
    """The finding, its share that of a step."""
    if row.forecast is None:
        return row
    share = row.forecast.share_of_step_pct
    return replace(row, finding=replace(row.finding, share_of_step_pct=share))


def _partial(row: RankedFinding, earlier: Sequence[RankedFinding]) -> RankedFinding:
    """The finding; a general one is partial that comes after one that can save less time.

    So is one that is most of a step, and that nothing replays: no change saves all of it, nor all
    of a kernel. Nor is it known what saves a wait for something outside. Nor is a run as many times
    as fast that mostly does what an earlier finding says, beside its steady time.
    """
    finding, saving = row.finding, row.forecast
    if saving is None:
        return row
    smaller = any(
        0 < each.finding.time_at_stake_ns < finding.time_at_stake_ns
        for each in earlier
        if each.finding.severity == finding.severity
    )
    most = finding.edit is None and (saving.share_of_step_pct or 0.0) > _MOST_OF_STEP_PCT
    of_kernel = finding.subject.kind == "kernel" and finding.saving == "at-most"
    is_partial = finding.outside or (finding.general and smaller)
    is_partial |= most and (finding.general or of_kernel)
    is_partial |= saving.saved_per_step_ns is None and _runs_on(earlier)
    return replace(row, forecast=replace(saving, is_partial=is_partial))


def unrecorded(
    findings: Sequence[RankedFinding], step_ns: int, unrecorded_ns: int | None
) -> tuple[RankedFinding, ...]:
    """The findings, times per step in terms of the step without the recorder; of `step_ns`.

    The recorder makes some steps twice as long: what is saved of the recorded one can exceed the
    step that the program takes by itself.
    """
    if not unrecorded_ns or not step_ns:
        return tuple(findings)
    times, result = unrecorded_ns / step_ns, []
    for row in findings:
        told, won = row.forecast, row.won
        if told and told.saved_per_step_ns is not None and told.step_ns is not None:
            told = replace(
                told,
                saved_per_step_ns=round(told.saved_per_step_ns * times),
                step_ns=round(told.step_ns * times),
                error_ns=None if told.error_ns is None else round(told.error_ns * times),
            )
        if won and won.per_step:
            names = ("before_ns", "after_ns", "error_ns", "alone_ns", "whole_ns")
            won = replace(won, **{each: round(getattr(won, each) * times) for each in names})
        result.append(replace(row, forecast=told, won=won))
    return tuple(result)


def _in_steps(finding: Finding, loops: Sequence[LoopTime]) -> bool:
    """Whether at least half of what a finding is about lies in one loop, as far as is known.

    A replay is of steps: what is lost outside of them wins nothing there.
    """
    if not finding.lost or not loops:
        return True
    inside = (intervals.intersection(loop.time, finding.lost.time).total() for loop in loops)
    return 2 * max(inside) >= finding.lost.time.total()


def _replayed(
    row: RankedFinding, model: Model, times: float, given: Sequence[Edit], has_loops: bool
) -> RankedFinding:
    """A finding whose edit was not replayed yet, with what that saves; `times` that of the model.

    It is what it saves on top of what is `given`. Its severity follows from that, unless it is a
    note.
    """
    finding = row.finding
    if not finding.edit or finding.error_ns is not None or not finding.share_of_step_pct:
        return row
    replayed = model.forecast(finding.edit, given=given)
    saved_ns = round(max(replayed.saved_ns, 0) * times)
    bound_ns = finding.lost.time.total() if finding.lost else None
    if bound_ns is not None and not has_loops and row.analysis == gpu_idle.ANALYSIS.name:
        # A replay of a whole run also shortens what comes once.
        saved_ns = min(saved_ns, bound_ns)
    span_ns = 100 * finding.time_at_stake_ns / finding.share_of_step_pct
    severity = finding.severity
    if severity != "info":
        severity = severity_of(saved_ns, round(span_ns)) or "info"
    error_ns, at_stake_ns = round(replayed.error_ns * times), saved_ns
    # What may save nothing has a bound alone. The loss is one: one pause of 284 ms among 15 steps
    # saves 25 ± 58 ms of each.
    bounded = bound_ns is not None and error_ns >= saved_ns > bound_ns - error_ns
    if bound_ns is not None and bounded:
        at_stake_ns = bound_ns
    return replace(
        row,
        finding=replace(
            finding,
            severity=severity,
            time_at_stake_ns=min(at_stake_ns, round(span_ns)),
            share_of_step_pct=share_pct(at_stake_ns, round(span_ns)) if saved_ns else None,
            saving="at-most" if bounded else "about",
            error_ns=None if bounded else error_ns,
        ),
    )


def _with_limit(row: RankedFinding, model: Model) -> RankedFinding:
    """A finding on lost time, of which its replayed edit saves much less, with what limits then."""
    one = row.finding
    if not one.edit or not one.lost or row.severity == "info" or one.saving == "at-most":
        return row
    own_ns = one.lost.time.total()
    if 3 * one.time_at_stake_ns >= 2 * own_ns or not one.time_at_stake_ns:
        return row
    return replace(
        row, finding=replace(one, template=one.template + limit_sentence(model, one.edit))
    )


def _within(finding: Finding, steady_ns: int | None) -> Finding:
    """The finding, its time at stake limited to the steady time that it claims a share of.

    Below the fraction LOW of that time it becomes `info`, even if it is a large share of a GPU
    that works briefly.
    """
    at_stake_ns = finding.time_at_stake_ns
    if not steady_ns or finding.share_of_step_pct is None or not at_stake_ns:
        return finding
    if at_stake_ns < LOW * steady_ns:
        return replace(finding, severity="info")
    if at_stake_ns <= steady_ns:
        return finding
    return replace(finding, time_at_stake_ns=steady_ns, share_of_step_pct=100.0)


def _one_analysis_per_cause(findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """The findings; of each cause, only those of the analysis with the largest one keep severity.

    Findings of one analysis on one cause are about different places, such as lines.
    """
    largest: dict[str, RankedFinding] = {}
    for row in findings:
        best = largest.get(row.finding.cause)
        # Of equal findings the later one wins: it is the more specific in reading order.
        if best is None or rank(row) <= rank(best):
            largest[row.finding.cause] = row
    return [
        row if not row.finding.cause or largest[row.finding.cause].analysis == row.analysis
        else _as_info(row)
        for row in findings
    ]  # fmt: skip


def _one_per_line(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; of those on one line the first is of all that its remedy saves there.

    That is what the same analysis or another one with the same remedy finds.
    """
    first: dict[Subject, list[RankedFinding]] = {}
    for row in sorted(findings, key=rank):
        one = row.finding
        if one.subject.kind != "line" or not one.share_of_step_pct or one.general:
            continue
        alike = first.setdefault(one.subject, [row])
        same = row.analysis == alike[0].analysis or one.remedy == alike[0].finding.remedy
        if row.severity != "info" and row is not alike[0] and same:
            alike.append(row)
    for row in findings:
        alike = first.get(row.finding.subject, [])
        if len(alike) > 1 and row is alike[0]:
            yield _joined(alike)
        elif any(row is each for each in alike[1:]):
            yield replace(row, finding=replace(row.finding, severity="info", edit=None))
        else:
            yield row


def _joined(rows: Sequence[RankedFinding]) -> RankedFinding:
    """The first of findings on a line, with the time, the edits and what is wrong of all."""
    first, others = rows[0].finding, [row.finding for row in rows[1:]]
    every = [first, *others]
    span_ns = round(100 * first.time_at_stake_ns / (first.share_of_step_pct or 100))
    time_ns = min(sum(each.time_at_stake_ns for each in every), span_ns)
    template, values = first.template, dict(first.evidence.values)
    for number, other in enumerate(others):
        # Names of evidence are those of one finding.
        own, said = f"also{number}_", other.template.split(". ")[0].rstrip(".")
        template += f" There, too: {prefixed(said, own)}."
        values |= {f"{own}{name}": value for name, value in other.evidence.values.items()}
    errors, edits = [each.error_ns for each in every], [each.edit for each in every if each.edit]

    def edit(changed: Changed) -> None:
        for each in edits:
            each(changed)

    bound = None in errors or len({each.saving for each in every}) > 1
    severity = severity_of(time_ns, span_ns) or first.severity
    severity = max(severity, first.severities[1], key=SEVERITIES.index)
    joined = replace(
        first,
        severity=min(severity, first.severity, key=SEVERITIES.index),
        template=template,
        evidence=replace(first.evidence, values=values),
        time_at_stake_ns=time_ns,
        share_of_step_pct=share_pct(time_ns, span_ns),
        saving="at-most" if bound else first.saving,
        error_ns=None if bound else round(float(np.linalg.norm(np.array(errors, float)))),
        edit=edit if edits else None,
    )
    return replace(rows[0], finding=joined)


def _behind_compilation(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings of a run without loops; none is worse than compilation that takes far longer.

    What came once beside it is as much paid once: a file read in 102 ms of 475 ms that are not
    first uses, beside 10.9 s of compilation.
    """
    compiled = [row for row in findings if row.analysis == phases.ANALYSIS.name]
    longest = max(compiled, key=lambda row: row.finding.time_at_stake_ns, default=None)
    for row in findings:
        finding = row.finding
        small = longest and 0 < finding.time_at_stake_ns < MEDIUM * longest.finding.time_at_stake_ns
        if longest and small and longest.severity != "info":
            severity = max(finding.severity, longest.finding.severity, key=SEVERITIES.index)
            row = replace(row, finding=replace(finding, severity=severity))
        yield row


def _with_leaders(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; a specific one gets the severity of the general finding of its cause.

    It does so if it is likely to save more than the general one, and then goes before it.
    """
    rated = [row.finding for row in findings if row.finding.severity != "info"]
    general = {finding.cause: finding for finding in rated if finding.general and finding.cause}
    for row in findings:
        finding, leader = row.finding, general.get(row.finding.cause)
        specific = leader is not None and not finding.general and finding.severity != "info"
        if leader and specific and likely_ns(finding) > likely_ns(leader):
            severity = min(finding.severity, leader.severity, key=SEVERITIES.index)
            severity = max(severity, finding.severities[1], key=SEVERITIES.index)
            row = replace(row, finding=replace(finding, severity=severity))
        yield row


def _each_time_once(in_order: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; one becomes `info` if an earlier one claims most of its time, or its kernel.

    So does a low one with the remedy of an earlier one of its analysis, and one that saves the same
    time by it, as copies of both directions that would overlap kernels: it is said once. General
    findings without a cause, such as slow steps, are considered after all others.
    """
    claimed: dict[int, Intervals] = {}
    kernels, remedies = set[tuple[str, str]](), set[tuple[str, str]]()
    claims = set[tuple[str, str, int]]()
    for row in sorted(in_order, key=sums_up):
        finding, lost = row.finding, row.finding.lost
        kernel = (row.analysis, finding.subject.name)
        repeats = finding.subject.kind == "kernel" and kernel in kernels
        before = claimed.get(lost.device, intervals.EMPTY) if lost else intervals.EMPTY
        if lost:
            repeats |= 2 * intervals.intersection(before, lost.time).total() > lost.time.total()
        remedy = (row.analysis, row.action.partition(". ")[0])
        repeats |= finding.severity == "low" and bool(row.action) and remedy in remedies
        same = (row.analysis, row.action, finding.time_at_stake_ns)
        repeats |= bool(row.action and finding.time_at_stake_ns and not lost) and same in claims
        if finding.severity == "info" or repeats:
            yield _as_info(row)
            continue
        kernels.add(kernel)
        remedies.add(remedy)
        claims.add(same)
        if lost:
            claimed[lost.device] = intervals.union(
                np.concatenate([before.start, lost.time.start]),
                np.concatenate([before.end, lost.time.end]),
            )
        yield row


def _with_alternatives(in_order: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; one says where most of what it saves of a step an earlier one saves, too.

    Two that save 87 and 53 % of one step save at least 40 % twice. In a plan each has what those
    before it leave.
    """
    earlier: list[RankedFinding] = []
    for row in in_order:
        share = _share_of_step(row)
        same = next(
            (
                each
                for each in earlier
                if each.forecast and row.forecast and each.forecast.loop == row.forecast.loop
                if not (_is_planned(row) and _is_planned(each))
                if 2 * (_share_of_step(each) + share - 100) > share
            ),
            None,
        )
        if row.severity != "info" and share:
            earlier.append(row)
            if same:
                where = "above" if same.analysis == row.analysis else f"in {same.analysis}"
                text = f" Either this or the remedy {where} saves most of that time, not both."
                row = replace(
                    row, finding=replace(row.finding, template=row.finding.template + text)
                )
        yield row


def _share_of_step(row: RankedFinding) -> float:
    return (row.forecast.share_of_step_pct if row.forecast else None) or 0.0


def _is_planned(row: RankedFinding) -> bool:
    return row.won is not None and row.won.place >= 0


def sums_up(row: RankedFinding) -> bool:
    """Whether a finding is worth its severity only where no other one is about its time."""
    finding = row.finding
    return finding.general and not finding.cause and finding.severity != "info"


def beside(
    rows: Sequence[RankedFinding], every: Sequence[RankedFinding]
) -> tuple[RankedFinding, ...]:
    """Findings of some analyses; those that sum up are notes where they are among those of all."""
    notes = {(row.analysis, row.message) for row in every if row.severity == "info"}
    kept, noted = list[RankedFinding](), list[RankedFinding]()
    for row in rows:
        repeats = sums_up(row) and (row.analysis, row.message) in notes
        (noted if repeats else kept).append(_as_info(row) if repeats else row)
    return (*kept, *noted)


def _as_info(ranked: RankedFinding) -> RankedFinding:
    return replace(ranked, finding=replace(ranked.finding, severity="info"))


def as_notes(findings: Sequence[RankedFinding], run_ns: int) -> tuple[RankedFinding, ...]:
    """The findings of a recording that shows no habit: its start matters, and what it lacks.

    How early a program launches, and what to do about idle time, copies and waits, is of a habit.
    Nor do SMs that idle for a little of it need a word. What takes most of the whole run, of
    `run_ns`, comes first: the run is about that.
    """
    most = [
        row
        for row in findings
        if row.analysis == gpu_idle.ANALYSIS.name
        and row.severity == "high"
        and row.finding.share_of_step_pct is None
        and row.finding.time_at_stake_ns >= _LEAST_OF_RUN * run_ns
    ]
    # The kinds of one stretch of CPU work are findings of their own.
    if sum(row.finding.time_at_stake_ns for row in most) < max(_LEAST_OF_RUN_NS, run_ns / 2):
        most = []
    notes = (
        RankedFinding(
            row.analysis,
            replace(
                row.finding,
                severity="info",
                time_at_stake_ns=0,
                share_of_step_pct=None,
                remedy="" if row.analysis in _OF_HABITS else row.finding.remedy,
            ),
        )
        for row in findings
        if row.analysis not in (*_OF_STARTS, run_ahead.ANALYSIS.name)
        and row not in most
        and not (row.analysis == WAVES.name and row.severity == "low")
    )
    return (*most, *(row for row in findings if row.analysis in _OF_STARTS), *notes)


_LEAST_OF_RUN, _LEAST_OF_RUN_NS = 0.1, 1_000_000_000
"""Less is a start. Programs that do the work of 3 to 30 ms again on the CPU take 2.5 s and more (4
public recordings)."""


_OF_STARTS = (trace_health.ANALYSIS.name, phases.ANALYSIS.name)


_OF_HABITS = tuple(
    each.ANALYSIS.name for each in (gpu_idle, kernel_share, memory_copies, sync_stalls)
)
