"""The plan of a report: remedies replayed one after the other, each the best of the rest.

It is of the steps of the main loop, or of the steady time of a run without steps. Two remedies that
shorten the same kernels win that once, and faster kernels win nothing until the CPU keeps up.

Cards and plan are one order: cards of planned findings stand in its order, and each says what its
remedy wins in the same replay. A plan that leaves out the largest loss, because nothing replays it,
would send the reader elsewhere than the first card: then there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceview.base import display
from traceview.base.findings import (
    LOW,
    SEVERITIES,
    Finding,
    Forecast,
    LoopTime,
    of_step,
    severity_of,
)
from traceview.base.records import record
from traceview.base.tables import Integers
from traceview.base.vocabulary.causes import CAUSES, Limit
from traceview.traces.analyses import load_widths, trace_health
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS as WAVES
from traceview.traces.facts.dependencies.replay import Changed, Edit
from traceview.traces.facts.forecast import Model
from traceview.traces.facts.steps.steps import steady_operations

BOUND_ERROR = 0.2
"""What a bound may miss, as a part of it: savings were 80 to 96 % of four (docs/accuracy.md)."""
REACH = 0.4
"""Part of a general finding's time that one remedy is likely to save: of the bound on late launches
four of five programs saved as much, and the median half (docs/accuracy.md; a test holds it)."""
MOST_REPLAYS, MOST_ITEMS_REPLAYED = 30, 3_000_000
"""Replays of a plan, and items of the graph that they replay in all: some 0.1 s at 30 million items
a second. A plan of n findings takes n (n + 1) ÷ 2 of them, for 7 findings 28."""
_AS_LAUNCHED = (WAVES.name, load_widths.ANALYSIS.name)
"""Analyses of kernels as they are: their remedies end where another kernel does the work."""


@record
class Won:
    """What a finding wins in the plan, in ns of a step of `whole_ns` (of the steady time without
    steps).

    `place` is its place in the plan from 0 on; −1 where it wins too little on top of the others.
    `alone_ns` is what it wins without the others. `per_step` says whether the times are those of a
    step.
    """

    place: int
    before_ns: int = 0
    after_ns: int = 0
    error_ns: int = 0
    wins_now: bool = False
    per_step: bool = False
    alone_ns: int = 0
    whole_ns: int = 0


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

    `won` is what it wins in the plan, None where its remedy was not replayed there. `opening`
    is the place of the limit that it is about among those that the report's opening names.
    """

    analysis: str
    finding: Finding
    forecast: Forecast | None = None
    won: Won | None = None
    opening: int = 0

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


@record
class Whole:
    """What a plan begins with: a step of `time_ns`, or the steady time; `steady_ns` is that time.

    A ns of the model is `per_ns` of it; `of_run` says that the model is of the run, not of steps.
    """

    time_ns: int
    steady_ns: int
    per_ns: float
    of_run: bool

    @property
    def per_step(self) -> bool:
        return self.time_ns != self.steady_ns

    def severity(self, finding: Finding, won_ns: int) -> int:
        """The index in SEVERITIES of what a finding wins of the whole, within its bounds."""
        rated = severity_of(round(won_ns / self.time_ns * self.steady_ns), self.steady_ns) or "info"
        least, worst = (SEVERITIES.index(each) for each in finding.severities)
        return min(max(SEVERITIES.index(rated), worst), least)

    def won_ns(self, finding: Finding, saved_ns: float) -> int:
        """What a replay that wins so much is of the whole: no more than the finding's bound."""
        won_ns = round(saved_ns * self.per_ns)
        if finding.saving != "at-most" or not self.of_run or not finding.time_at_stake_ns:
            return won_ns
        return min(won_ns, round(finding.time_at_stake_ns / self.steady_ns * self.time_ns))

    @property
    def least_ns(self) -> float:
        """What is too little for the plan."""
        return LOW * self.time_ns


def whole(model: Model, loop: LoopTime | None, steady_ns: int) -> Whole:
    """What the plan of a model begins with, its main loop's step if it has steps."""
    if not len(model.follows):
        per_ns = int(steady_operations(model.trace).sum()) / max(len(model.last), 1)
        if loop and loop.is_all_of(steady_ns):
            return Whole(loop.step_ns, steady_ns, per_ns / max(loop.steps, 1), of_run=True)
        return Whole(steady_ns, steady_ns, per_ns, of_run=True)
    step_ns = loop.step_ns if loop else steady_ns
    times = step_ns / max(float(model.recorded.mean()), 1.0)
    # A mean step with what few steps do, such as a checkpoint, has no more to win.
    times = min(times, 1.0) if loop and loop.is_uneven else times
    return Whole(step_ns, steady_ns, times, of_run=False)


def planned(
    in_order: Sequence[RankedFinding], model: Model, loops: Sequence[LoopTime], steady_ns: int
) -> list[RankedFinding]:
    """The findings in their order, those whose remedies are in the plan by their places in it.

    As they are where one that is not in the plan comes before its first, but for a low one on what
    is beside the steps.
    """
    of_steps = bool(loops and len(model.follows))
    chosen = [at for at, row in enumerate(in_order) if _plannable(row, of_steps)]
    replays = min(MOST_REPLAYS, MOST_ITEMS_REPLAYED // max(len(model.graph), 1))
    most = next((n for n in range(len(chosen), 0, -1) if n * (n + 1) <= 2 * replays), 1)
    rows = {at: in_order[at] for at in chosen[:most]}
    if not rows:
        return [*in_order]
    of = whole(model, loops[0] if loops else None, steady_ns)
    result, keys = [*in_order], {at: rank(row) for at, row in enumerate(in_order)}
    severity, least_ns = 0, np.inf
    for at, won in _greedy(model, rows, of, accidents(in_order)):
        finding, won_ns = rows[at].finding, won.before_ns - won.after_ns
        # What wins more behind others than they do is no worse than they are.
        severity = max(severity, of.severity(finding, won_ns))
        least_ns = min(least_ns, reach(finding) * won_ns * steady_ns / of.time_ns)
        keys[at] = (severity, True, -least_ns)
        finding = replace(finding, severity=SEVERITIES[severity])
        result[at] = _as_replayed(replace(result[at], finding=finding, won=won), of)
    order = sorted(range(len(result)), key=lambda at: (*keys[at], _place(result[at])))
    result = [result[at] for at in order]
    about = (row for row in result if not in_doubt(row) and not _is_low_beside(row))
    first = next(about, None)
    if first and first.won and first.won.place == 0:
        return result
    return [*in_order]


def _is_low_beside(row: RankedFinding) -> bool:
    finding = row.finding
    return finding.severity == "low" and not finding.edit and not finding.share_of_step_pct


def in_doubt(row: RankedFinding) -> bool:
    """Whether a finding puts the whole recording in doubt."""
    return row.finding.severity == "high" and row.analysis == trace_health.ANALYSIS.name


def first_of(
    rows: Mapping[int, RankedFinding],
    likely_ns: Mapping[int, float],
    severity: Mapping[int, int],
    per_ns: float = 1.0,
) -> int:
    """The finding that comes first: of the worst the one that is likely to save most.

    Of those that save as much within their errors, and of what saves an unknown time, it is one
    whose saving is proven, or else one on what the opening names first: they are one story. A ns of
    a finding is `per_ns` of what is likely.
    """
    first = min(rows, key=lambda at: (severity[at], -likely_ns[at]))
    most_ns = BOUND_ERROR * likely_ns[first]

    def proven(at: int) -> bool:
        return rows[at].finding.error_ns is not None and rows[at].finding.saving != "at-most"

    def error_ns(at: int) -> float:
        one = rows[at].finding
        return (one.error_ns or 0) * reach(one) * per_ns if proven(at) else most_ns

    def ties(at: int) -> bool:
        within_ns = min(max(error_ns(first), error_ns(at)), most_ns)
        near = likely_ns[first] - likely_ns[at] <= within_ns
        return severity[at] == severity[first] and (near or not likely_ns[at])

    def order(at: int) -> tuple[bool, int, float]:
        return not proven(at), rows[at].opening, -likely_ns[at]

    return min(filter(ties, rows), key=order)


def limit_of(analysis: str, finding: Finding) -> Limit:
    """The limit that a finding is about: that of its cause, else of what its analysis finds.

    Kernels of which more is saved than their time are about their launches.
    """
    by_cause = {each.name: each.limit for each in CAUSES}
    if finding.cause in by_cause:
        return by_cause[finding.cause]
    limit = _LIMITS.get(analysis, "unknown")
    launches = finding.work and finding.time_at_stake_ns > finding.work.time.total()
    return "cpu-launch" if launches and limit == "gpu-compute" else limit


_LIMITS: Mapping[str, Limit] = {
    **dict.fromkeys(
        ["kernel-share", "wave-quantization", "load-widths", "roofline"], "gpu-compute"
    ),
    "communication": "communication",
    "memory-copies": "copies",
    "sync-stalls": "synchronization",
    "phases": "compilation",
}


def reach(finding: Finding) -> float:
    """The part of a finding's time that one remedy is likely to save."""
    return REACH if finding.general else 1.0


def likely_ns(finding: Finding) -> float:
    """The time that acting on a finding is likely to save."""
    return finding.time_at_stake_ns * reach(finding)


def rank(row: RankedFinding) -> tuple[int, bool, float]:
    """What orders findings: those in doubt, by severity, by the time likely to be saved."""
    severity = SEVERITIES.index(row.finding.severity)
    return severity, not in_doubt(row), -likely_ns(row.finding)


def _place(row: RankedFinding) -> int:
    """The place of a finding in the plan, behind all where it has none."""
    return row.won.place if row.won and row.won.place >= 0 else MOST_REPLAYS


def _plannable(row: RankedFinding, of_steps: bool) -> bool:
    """Whether a remedy can be a part of the plan: one that is replayed, of what is planned.

    What came a few times, without a share of a step, is no part of a step, nor is another loop's.
    What wins nothing alone may behind others.
    """
    finding, told = row.finding, row.forecast
    if not finding.edit or finding.outside or finding.severities[1] == "info":
        return False
    if not finding.time_at_stake_ns:
        return finding.error_ns is not None
    if not finding.share_of_step_pct:
        return False
    in_step = told is not None and told.saved_per_step_ns is not None and told.loop is None
    return in_step or not of_steps


def accidents(findings: Sequence[RankedFinding]) -> list[Edit]:
    """The edits of findings on what came a few times, whose time has no share of a step.

    What every step wins is told of the run without them: a long call in which the GPU would have
    had work left, if the steps before it were shorter, is theirs.
    """
    rows = (each.finding for each in findings)
    return [
        each.edit
        for each in rows
        if each.edit and each.time_at_stake_ns and not each.share_of_step_pct
    ]


def _greedy(
    model: Model, rows: Mapping[int, RankedFinding], of: Whole, given: Sequence[Edit]
) -> Iterator[tuple[int, Won]]:
    """What each remedy wins on top of those before it, the best of the rest at each place.

    The best is the one whose card would be first: by severity, then by what is likely to be won.
    The error of each place is that of the replay, and no less than those of the remedies so far,
    as squares. Advice on kernels as they are ends where others replace most of these.
    """
    left, done, squares = dict(rows), [*given], 0.0
    as_launched = {at for at, each in rows.items() if each.analysis in _AS_LAUNCHED}
    work = {at: _Work.of(model, each) for at, each in rows.items()}
    replaced = np.zeros(len(model.graph), bool)
    saved = model.saved_ns(*done) if done else 0
    alone: dict[int, int] = {}
    before_ns, place, chosen = of.time_ns, 0, set[int]()
    while left:
        together = {at: model.saved_ns(*done, _edit(each)) for at, each in left.items()}
        wins = {
            at: of.won_ns(
                left[at].finding,
                min(each - saved, work[at].most_ns if done and of.of_run else np.inf),
            )
            for at, each in together.items()
        }
        alone = alone or {at: max(each, 0) for at, each in wins.items()}
        if max(wins.values()) < of.least_ns:
            break
        worth = {at: each for at, each in left.items() if wins[at] >= of.least_ns}
        likely = {at: wins[at] * reach(each.finding) for at, each in worth.items()}
        severity = {at: of.severity(each.finding, wins[at]) for at, each in worth.items()}
        best = min(worth, key=lambda at: (severity[at], -likely[at]))
        if not place:
            best = first_of(worth, likely, severity, of.time_ns / of.steady_ns)
        finding = left[best].finding
        done.append(_edit(left.pop(best)))
        if best not in as_launched:
            replaced |= work[best].time_ns > 0
        after_ns = max(before_ns - wins[best], 0)
        squares += ((finding.error_ns or 0) / of.steady_ns * of.time_ns) ** 2
        replayed = model.forecast(*done[len(given) :], given=given)
        error_ns = max(replayed.error_ns * of.per_ns, np.sqrt(squares))
        now = alone[best] >= of.least_ns
        times = before_ns, after_ns, round(error_ns)
        yield best, Won(place, *times, now, of.per_step, alone[best], of.time_ns)
        before_ns, place, saved = after_ns, place + 1, together[best]
        for at in as_launched & left.keys():
            if 2 * work[at].time_ns[replaced].sum() > work[at].time_ns.sum():
                del left[at]
        chosen.add(best)
    for at in rows.keys() - chosen:
        yield at, Won(-1, alone_ns=alone[at], per_step=of.per_step)


@record
class _Work:
    """The time of the operations that a remedy makes shorter, 0 for all other items.

    Of the run, it wins no more than `most_ns` where it makes nothing else shorter; steps are in
    terms of what they take without the recorder.
    """

    time_ns: Integers
    most_ns: float

    @classmethod
    def of(cls, model: Model, row: RankedFinding) -> _Work:
        graph, changed = model.graph, Changed(model.graph)
        _edit(row)(changed)
        less_ns = np.maximum(graph.own_ns - changed.own_ns, 0)
        pairs = (changed.begin_ns, graph.begin.lag_ns), (changed.finish_ns, graph.finish.lag_ns)
        others = less_ns[: graph.calls].any() or any((one != other).any() for one, other in pairs)
        less_ns[: graph.calls] = 0
        most_ns = float(less_ns[model.timed].sum()) / max(len(model.recorded), 1)
        return cls(np.where(less_ns > 0, graph.own_ns, 0), np.inf if others else most_ns)


def _edit(row: RankedFinding) -> Edit:
    assert row.finding.edit is not None
    return row.finding.edit


def _as_replayed(row: RankedFinding, of: Whole) -> RankedFinding:
    """A finding of the plan, its forecast of its remedy alone as replayed for the plan."""
    finding, told, won = row.finding, row.forecast, row.won
    if told is None or won is None or not (won.alone_ns > 0 or won.place > 0):
        return row
    saved_ns = max(won.alone_ns, 0)
    if finding.saving == "at-most":
        # A bound is no less than the loss.
        saved_ns = max(saved_ns, round(finding.time_at_stake_ns / of.steady_ns * of.time_ns))
    error_ns = finding.error_ns
    if error_ns is not None:
        error_ns = round(error_ns / of.steady_ns * of.time_ns)
    told = of_step(told, saved_ns, of.time_ns, error_ns, per_step=of.per_step)
    if not of.per_step:
        finding = replace(
            finding, time_at_stake_ns=saved_ns, share_of_step_pct=told.share_of_run_pct
        )
    return replace(row, finding=finding, forecast=told)
