"""Order of the findings of a report: worst first, each loss once, at most seven above `info`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    in_order = sorted(_with_leaders(_one_analysis_per_cause(findings)), key=_rank)
    in_order = sorted(_each_time_once(in_order), key=_rank)
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
            row = RankedFinding(row.analysis, finding, replace(saving, is_partial=is_partial))
        forecasts.append(row)
    return tuple(forecasts)


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


def _likely_ns(finding: Finding) -> float:
    """The time that acting on a finding is likely to save."""
    return finding.time_at_stake_ns * (REACH if finding.general else 1.0)


def _rank(ranked: RankedFinding) -> tuple[int, bool, float]:
    severity = ranked.finding.severity
    in_doubt = severity == "high" and ranked.analysis == trace_health.ANALYSIS.name
    return SEVERITIES.index(severity), not in_doubt, -_likely_ns(ranked.finding)
