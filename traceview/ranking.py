"""Order of the findings of a report: worst first, each loss once, at most seven above `info`.

Findings whose remedies can be replayed are ordered by a plan: one remedy after the other, each time
the one that wins most on top of those before it. Two that shorten the same kernels win that once,
and faster kernels win nothing until the CPU keeps up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceview import display, intervals
from traceview.analyses import trace_health
from traceview.analyses.base import Result, Skipped
from traceview.facts.dependencies.forecast import Model
from traceview.facts.dependencies.replay import Edit
from traceview.facts.steps.steps import steady_operations
from traceview.findings import (
    LOW,
    SEVERITIES,
    Finding,
    Forecast,
    LoopTime,
    LostTime,
    forecast,
    severity_of,
    share_pct,
)
from traceview.intervals import Intervals
from traceview.records import record

Outcome = Result | Skipped

MOST_ABOVE_INFO = 7
"""Most findings above `info`: nobody acts on more in one go."""
REACH = 0.25
"""Part of a general finding's time that one remedy is likely to save: torch.compile saved 2.2 of
the 10.7 ms per step that nanoGPT lost to late launches (docs/accuracy.md)."""


MOST_REPLAYS, MOST_ITEMS_REPLAYED = 30, 3_000_000
"""Replays of a plan, and items of the graph that they replay in all: some 0.1 s at 30 million items
a second. A plan of n findings takes n (n + 1) ÷ 2 of them, for 7 findings 28."""


@record
class Won:
    """What a finding wins in the plan, in ns of a step (of the steady time without steps).

    `place` is its place in the plan from 0 on; −1 where it wins too little on top of the others.
    `per_step` says whether the times are those of a step.
    """

    place: int
    before_ns: int = 0
    after_ns: int = 0
    error_ns: int = 0
    wins_now: bool = False
    per_step: bool = False


@record
class PlanStep:
    """A row of the plan: the time of a step before and after the remedy of a finding.

    `finding` is its index among the findings. `step_after_ns` is exact to ± `error_ns`. `wins_now`
    is False where the remedy wins nothing unless those before it are done. Without steps the times
    are those of the run after warm-up.
    """

    finding: int
    step_before_ns: int
    step_after_ns: int
    error_ns: int
    wins_now: bool


@dataclass(frozen=True, repr=False)
class RankedFinding(display.Drawn):
    """A finding, the analysis that reports it, and a forecast of what acting on it saves.

    `won` is what it wins in the plan, None where its remedy was not replayed there.
    """

    analysis: str
    finding: Finding
    forecast: Forecast | None = None
    won: Won | None = None

    @property
    def severity(self) -> str:
        return self.finding.severity

    @property
    def message(self) -> str:
        """What is wrong, with its numbers."""
        return self.finding.message

    @property
    def action(self) -> str:
        """What to do about it."""
        return self.finding.action


def plan(findings: Sequence[RankedFinding]) -> tuple[PlanStep, ...]:
    """The plan of a report, in its order."""
    rows = [(at, each.won) for at, each in enumerate(findings) if each.won and each.won.place >= 0]
    rows.sort(key=lambda row: row[1].place)
    return tuple(
        PlanStep(at, won.before_ns, won.after_ns, won.error_ns, won.wins_now) for at, won in rows
    )


def ranked(
    outcomes: Mapping[str, Outcome],
    loops: Sequence[LoopTime] = (),
    time_of: Callable[[Finding], LostTime | None] = lambda finding: finding.lost,
    steady_ns: int | None = None,
    model: Callable[[], Model] | None = None,
) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by the time that acting on them is likely to save.

    With a `model`, findings with an edit are ordered, and get their severity, by what they win in
    the plan.

    A finding that puts the whole recording in doubt comes first. Each loss is reported once: of
    findings that share a cause, those of one analysis keep their severity; of findings on mostly
    the same time, or on the same kernel in one analysis, the first does. The others become `info`,
    as do all after the first seven. `loops` are the loops of the trace, `time_of` returns the time
    that a finding is about, and `steady_ns` is the longest steady time of a device, which bounds
    what a finding can save of it. With loops, the share of a finding is a share of a step, None
    where its time lies outside the steps.
    """
    findings = [
        RankedFinding(name, _within(finding, steady_ns))
        for name, outcome in outcomes.items()
        if isinstance(outcome, Result)
        for finding in outcome.findings
    ]
    whole_ns, per_ns = 0, 0.0
    if model and steady_ns and any(row.finding.edit for row in findings):
        whole_ns, per_ns = _whole(model(), loops[0] if loops else None, steady_ns)
        times = per_ns * steady_ns / whole_ns
        findings = [
            _replayed(row, model(), times)
            if _in_steps(row.finding, loops)
            else replace(row, finding=replace(row.finding, edit=None))
            for row in findings
        ]
    in_order = sorted(_with_leaders(_one_analysis_per_cause(findings)), key=_rank)
    in_order = sorted(_each_time_once(in_order), key=_rank)
    if model and steady_ns and whole_ns:
        in_order = _planned(in_order, model(), whole_ns, per_ns, steady_ns)
    in_order[MOST_ABOVE_INFO:] = map(_as_info, in_order[MOST_ABOVE_INFO:])
    forecasts = []
    for place, row in enumerate(in_order):
        finding = row.finding
        saving = forecast(finding, loops, time_of(finding) if loops else None)
        if saving and row.analysis != trace_health.ANALYSIS.name:
            # A general finding that comes after one that can save less time.
            is_partial = finding.general and any(
                0 < earlier.finding.time_at_stake_ns < finding.time_at_stake_ns
                for earlier in in_order[:place]
                if earlier.finding.severity == finding.severity
            )
            if loops:
                finding = replace(finding, share_of_step_pct=saving.share_of_step_pct)
            row = replace(row, finding=finding, forecast=replace(saving, is_partial=is_partial))
        forecasts.append(row)
    return tuple(forecasts)


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
            spans = (won.before_ns, won.after_ns, won.error_ns)
            before, after, error = (round(each * times) for each in spans)
            won = replace(won, before_ns=before, after_ns=after, error_ns=error)
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


def _replayed(row: RankedFinding, model: Model, times: float) -> RankedFinding:
    """A finding whose edit was not replayed yet, with what that saves; `times` that of the model.

    Its severity follows from that, unless it is a note.
    """
    finding = row.finding
    if not finding.edit or finding.error_ns is not None or not finding.share_of_step_pct:
        return row
    replayed = model.forecast(finding.edit)
    saved_ns = round(max(replayed.saved_ns, 0) * times)
    span_ns = 100 * finding.time_at_stake_ns / finding.share_of_step_pct
    severity = finding.severity
    if severity != "info":
        severity = severity_of(saved_ns, round(span_ns)) or "info"
    return replace(
        row,
        finding=replace(
            finding,
            severity=severity,
            time_at_stake_ns=min(saved_ns, round(span_ns)),
            share_of_step_pct=share_pct(saved_ns, round(span_ns)) if saved_ns else None,
            saving="about",
            error_ns=round(replayed.error_ns * times),
        ),
    )


def _planned(
    in_order: Sequence[RankedFinding],
    model: Model,
    whole_ns: int,
    per_ns: float,
    steady_ns: int,
) -> list[RankedFinding]:
    """The findings, those with edits by what they win in the plan.

    The plan begins with `whole_ns`, of which a ns of the model is `per_ns`; `steady_ns` is the
    steady time.
    """
    chosen = [
        at
        for at, row in enumerate(in_order)
        # What came a few times, without a share of a step, is no part of a step's plan.
        if row.finding.edit and row.finding.share_of_step_pct
        if row.finding.severities[1] != "info"
    ]
    replays = min(MOST_REPLAYS, MOST_ITEMS_REPLAYED // max(len(model.graph), 1))
    most = next((n for n in range(len(chosen), 0, -1) if n * (n + 1) <= 2 * replays), 1)
    edits = {at: edit for at in chosen[:most] if (edit := in_order[at].finding.edit)}
    result = list(in_order)
    errors = {at: (in_order[at].finding.error_ns or 0) * whole_ns / steady_ns for at in edits}
    reach = {at: _reach(in_order[at].finding) for at in edits}
    for at, won in _greedy(model, edits, errors, reach, whole_ns, per_ns):
        row = result[at]
        won = replace(won, per_step=whole_ns != steady_ns)
        won_ns = round((won.before_ns - won.after_ns) / whole_ns * steady_ns)
        rated = severity_of(won_ns, steady_ns) or "info"
        least, worst = (SEVERITIES.index(each) for each in row.finding.severities)
        severity = SEVERITIES[min(max(SEVERITIES.index(rated), worst), least)]
        result[at] = replace(row, finding=replace(row.finding, severity=severity), won=won)
    return sorted(result, key=lambda row: _rank(row, steady_ns / whole_ns))


def _whole(model: Model, loop: LoopTime | None, steady_ns: int) -> tuple[int, float]:
    """The time that a plan begins with, and how much of it a ns of the model is."""
    if len(model.follows):
        whole_ns = loop.step_ns if loop else steady_ns
        times = whole_ns / max(float(model.recorded.mean()), 1.0)
        # A mean step with what few steps do, such as a checkpoint, has no more to win.
        return whole_ns, min(times, 1.0) if loop and loop.is_uneven else times
    return steady_ns, int(steady_operations(model.trace).sum()) / max(len(model.last), 1)


def _greedy(
    model: Model,
    edits: Mapping[int, Edit],
    errors: Mapping[int, float],
    reach: Mapping[int, float],
    whole_ns: int,
    per_ns: float,
) -> Iterator[tuple[int, Won]]:
    """What each edit wins on top of those before it, the best of the rest at each place.

    What is best counts by `reach`, the part of it that one remedy is likely to win.
    The error of each place adds those of the remedies so far, as squares, to that of the replay.
    """
    left, done, saved, squares = dict(edits), list[Edit](), 0, 0.0
    alone: dict[int, int] = {}
    before_ns, place = whole_ns, 0
    while left:
        together = {at: model.saved_ns(*done, edit) for at, edit in left.items()}
        alone = alone or together
        wins = {at: round((each - saved) * per_ns) for at, each in together.items()}
        if max(wins.values()) < LOW * whole_ns:
            break
        best = max(wins, key=lambda at: wins[at] * reach[at] * (wins[at] >= LOW * whole_ns))
        won_ns = wins[best]
        done.append(left.pop(best))
        after_ns = max(before_ns - won_ns, 0)
        squares += errors[best] ** 2
        error_ns = round(np.hypot(model.forecast(*done).error_ns * per_ns, np.sqrt(squares)))
        now = alone[best] * per_ns >= LOW * whole_ns
        yield best, Won(place, before_ns, after_ns, error_ns, now)
        before_ns, place, saved = after_ns, place + 1, together[best]
    yield from ((at, Won(-1)) for at in left)


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
        if best is None or _rank(row) <= _rank(best):
            largest[row.finding.cause] = row
    return [
        row if not row.finding.cause or largest[row.finding.cause].analysis == row.analysis
        else _as_info(row)
        for row in findings
    ]  # fmt: skip


def _with_leaders(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; a specific one gets the severity of the general finding of its cause.

    It does so if it is likely to save more than the general one, and then goes before it.
    """
    rated = [row.finding for row in findings if row.finding.severity != "info"]
    general = {finding.cause: finding for finding in rated if finding.general and finding.cause}
    for row in findings:
        finding, whole = row.finding, general.get(row.finding.cause)
        specific = whole is not None and not finding.general and finding.severity != "info"
        if whole and specific and _likely_ns(finding) > _likely_ns(whole):
            severity = min(finding.severity, whole.severity, key=SEVERITIES.index)
            row = replace(row, finding=replace(finding, severity=severity))
        yield row


def _each_time_once(in_order: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; one becomes `info` if an earlier one claims most of its time, or its kernel.

    General findings without a cause, such as slow steps, are considered after all others.
    """
    claimed: dict[int, Intervals] = {}
    kernels: set[tuple[str, str]] = set()
    for row in sorted(in_order, key=lambda row: row.finding.general and not row.finding.cause):
        finding, lost = row.finding, row.finding.lost
        kernel = (row.analysis, finding.subject.name)
        repeats = finding.subject.kind == "kernel" and kernel in kernels
        before = claimed.get(lost.device, intervals.EMPTY) if lost else intervals.EMPTY
        if lost:
            repeats |= 2 * intervals.intersection(before, lost.time).total() > lost.time.total()
        if finding.severity == "info" or repeats:
            yield _as_info(row)
            continue
        kernels.add(kernel)
        if lost:
            claimed[lost.device] = intervals.union(
                np.concatenate([before.start, lost.time.start]),
                np.concatenate([before.end, lost.time.end]),
            )
        yield row


def _as_info(ranked: RankedFinding) -> RankedFinding:
    return replace(ranked, finding=replace(ranked.finding, severity="info"))


def as_notes(findings: Sequence[RankedFinding]) -> tuple[RankedFinding, ...]:
    """The findings of a recording that shows no habit: only what is missing in it matters."""
    health = trace_health.ANALYSIS.name
    notes = (
        RankedFinding(
            row.analysis,
            replace(row.finding, severity="info", time_at_stake_ns=0, share_of_step_pct=None),
        )
        for row in findings
        if row.analysis != health
    )
    return (*(row for row in findings if row.analysis == health), *notes)


def _reach(finding: Finding) -> float:
    """The part of a finding's time that one remedy is likely to save."""
    return REACH if finding.general else 1.0


def _likely_ns(finding: Finding) -> float:
    """The time that acting on a finding is likely to save."""
    return finding.time_at_stake_ns * _reach(finding)


def _rank(ranked: RankedFinding, times: float = 1.0) -> tuple[int, bool, float]:
    """What orders findings; what they win in the plan counts so many times, else their time."""
    severity, won = ranked.finding.severity, ranked.won
    in_doubt = severity == "high" and ranked.analysis == trace_health.ANALYSIS.name
    likely_ns = _likely_ns(ranked.finding)
    if won:
        likely_ns = (won.before_ns - won.after_ns) * times * _reach(ranked.finding)
    return SEVERITIES.index(severity), not in_doubt, -likely_ns
