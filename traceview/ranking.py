"""Order of the findings of a report: worst first, each loss once, at most seven above `info`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceview import display, intervals
from traceview.analyses import trace_health
from traceview.analyses.base import Result, Skipped
from traceview.findings import LOW, SEVERITIES, Finding, Forecast, LoopTime, LostTime, forecast
from traceview.intervals import Intervals

Outcome = Result | Skipped

MOST_ABOVE_INFO = 7
"""Most findings above `info`: nobody acts on more in one go."""
REACH = 0.25
"""Part of a general finding's time that one remedy is likely to save: torch.compile saved 2.2 of
the 10.7 ms per step that nanoGPT lost to late launches (docs/accuracy.md)."""


@dataclass(frozen=True, repr=False)
class RankedFinding(display.Drawn):
    """A finding, the analysis that reports it, and a forecast of what acting on it saves."""

    analysis: str
    finding: Finding
    forecast: Forecast | None = None


def ranked(
    outcomes: Mapping[str, Outcome],
    loops: Sequence[LoopTime] = (),
    time_of: Callable[[Finding], LostTime | None] = lambda finding: finding.lost,
    steady_ns: int | None = None,
) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by the time that acting on them is likely to save.

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
    one_per_cause = [*_one_analysis_per_cause(findings)]
    in_order = sorted(_with_leaders(one_per_cause), key=_rank)
    in_order = sorted(_each_time_once(in_order), key=_rank)
    limited = (*in_order[:MOST_ABOVE_INFO], *map(_as_info, in_order[MOST_ABOVE_INFO:]))
    return tuple(
        _with_forecast(each, limited[:place], loops, time_of) for place, each in enumerate(limited)
    )


def _with_forecast(
    ranked: RankedFinding,
    before: Sequence[RankedFinding],
    loops: Sequence[LoopTime],
    time_of: Callable[[Finding], LostTime | None],
) -> RankedFinding:
    """The finding with its forecast; findings of trace-health get none."""
    own = forecast(ranked.finding, loops, time_of(ranked.finding) if loops else None)
    if own is None or ranked.analysis == trace_health.ANALYSIS.name:
        return ranked
    own = replace(own, is_partial=_follows_less(ranked.finding, before))
    if not loops:
        return replace(ranked, forecast=own)
    finding = replace(ranked.finding, share_of_step_pct=own.share_of_step_pct)
    return replace(ranked, finding=finding, forecast=own)


def _follows_less(finding: Finding, before: Sequence[RankedFinding]) -> bool:
    """Whether a general finding comes after one that can save less time."""
    alike = (each.finding for each in before if each.finding.severity == finding.severity)
    return finding.general and any(
        0 < each.time_at_stake_ns < finding.time_at_stake_ns for each in alike
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


def _one_analysis_per_cause(findings: Sequence[RankedFinding]) -> Iterable[RankedFinding]:
    """The findings; of each cause, only those of the analysis with the largest one keep severity.

    Findings of one analysis on one cause are about different places, such as lines.
    """
    largest: dict[str, RankedFinding] = {}
    for each in findings:
        best = largest.get(each.finding.cause)
        # Of equal findings the later one wins: it is the more specific in reading order.
        if best is None or _rank(each) <= _rank(best):
            largest[each.finding.cause] = each
    for each in findings:
        same = each.finding.cause == "" or largest[each.finding.cause].analysis == each.analysis
        yield each if same else _as_info(each)


def _with_leaders(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; a specific one gets the severity of the general finding of its cause.

    It does so if it is likely to save more than the general one, and then goes before it.
    """
    general = {each.finding.cause: each.finding for each in findings if _sums_up(each.finding)}
    for each in findings:
        whole = general.get(each.finding.cause)
        leads = whole and not each.finding.general and _likely_ns(each.finding) > _likely_ns(whole)
        if whole and leads and each.finding.severity != "info":
            severity = min(each.finding.severity, whole.severity, key=SEVERITIES.index)
            each = replace(each, finding=replace(each.finding, severity=severity))
        yield each


def _sums_up(finding: Finding) -> bool:
    return finding.general and finding.cause != "" and finding.severity != "info"


def _each_time_once(in_order: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings; one becomes `info` if an earlier one claims most of its time, or its kernel.

    General findings without a cause, such as slow steps, are considered after all others.
    """
    claimed: dict[int, Intervals] = {}
    kernels: set[tuple[str, str]] = set()
    for each in sorted(in_order, key=lambda each: each.finding.general and not each.finding.cause):
        finding = each.finding
        kernel = (each.analysis, finding.subject.name)
        repeats = finding.subject.kind == "kernel" and kernel in kernels
        if finding.severity == "info" or repeats or _is_claimed(finding.lost, claimed):
            yield _as_info(each)
            continue
        kernels.add(kernel)
        _claim(finding.lost, claimed)
        yield each


def _is_claimed(lost: LostTime | None, claimed: Mapping[int, Intervals]) -> bool:
    """Whether more than half of the lost time is claimed by earlier findings."""
    if lost is None or lost.device not in claimed:
        return False
    again = intervals.intersection(claimed[lost.device], lost.time)
    return 2 * again.total() > lost.time.total()


def _claim(lost: LostTime | None, claimed: dict[int, Intervals]) -> None:
    if lost is not None:
        parts = claimed.get(lost.device, intervals.EMPTY), lost.time
        claimed[lost.device] = intervals.union(
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
        )


def _as_info(ranked: RankedFinding) -> RankedFinding:
    return replace(ranked, finding=replace(ranked.finding, severity="info"))


def _likely_ns(finding: Finding) -> float:
    """The time that acting on a finding is likely to save."""
    return finding.time_at_stake_ns * (REACH if finding.general else 1.0)


def _rank(ranked: RankedFinding) -> tuple[int, bool, float]:
    severity = ranked.finding.severity
    in_doubt = severity == "high" and ranked.analysis == trace_health.ANALYSIS.name
    return SEVERITIES.index(severity), not in_doubt, -_likely_ns(ranked.finding)
