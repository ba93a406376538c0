"""Findings of a report in order: worst first, each loss said once, no more than can be acted on."""

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
"""Nobody acts on more in one go; further findings are `info`."""
REACH = 0.25
"""Part of the time of a general finding that one remedy is likely to win: torch.compile won 2.2 of
the 12.0 ms per step that nanoGPT lost to late launches (docs/accuracy.md)."""


@dataclass(frozen=True, repr=False)
class RankedFinding:
    """A finding, the name of the analysis that reports it, and what acting on it wins at most."""

    analysis: str
    finding: Finding
    forecast: Forecast | None = None

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self)


def ranked(
    outcomes: Mapping[str, Outcome],
    loops: Sequence[LoopTime] = (),
    time_of: Callable[[Finding], LostTime | None] = lambda finding: finding.lost,
    steady_ns: int | None = None,
) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by what acting on them is likely to win.

    A finding that puts the whole recording in doubt comes first of all. Time is said once: of
    findings that share a cause those of one analysis keep their severity, of findings on mostly
    the same time, or on the same kernel in one analysis, the first. The others become `info`, and
    so do all after the first seven. `loops` are those of the trace, `time_of` tells which time a
    finding is about, `steady_ns` is the longest steady time of a device: no finding can save more
    of it. With loops, the share of a finding is that of a step; None where its time is outside.
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
    """The finding with its forecast; none for what a better recording would show."""
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
    """The finding with no more time at stake than the steady time that it claims a share of.

    What is little of that is for information, also where it is much of a GPU that works briefly.
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
    """The findings, where for each cause only the analysis with the largest one speaks.

    Findings of one analysis on one cause are about different places, such as lines.
    """
    speaks: dict[str, RankedFinding] = {}
    for each in findings:
        best = speaks.get(each.finding.cause)
        # Of equal findings the later one speaks: it is the more specific in reading order.
        if best is None or _rank(each) <= _rank(best):
            speaks[each.finding.cause] = each
    for each in findings:
        same = each.finding.cause == "" or speaks[each.finding.cause].analysis == each.analysis
        yield each if same else _as_info(each)


def _with_leaders(findings: Sequence[RankedFinding]) -> Iterator[RankedFinding]:
    """The findings, where the surest part of a loss is as severe as its general finding.

    That is the finding of a cause that names a single thing and wins more than the general one is
    likely to: it goes first.
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
    """The findings, where those become `info` whose time, or kernel, another speaks for.

    The first in order speaks; general findings without a cause, such as slow steps, after all else.
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
    """Whether most of some time is claimed."""
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
    """The time that acting on a finding is likely to win."""
    return finding.time_at_stake_ns * (REACH if finding.general else 1.0)


def _rank(ranked: RankedFinding) -> tuple[int, bool, float]:
    severity = ranked.finding.severity
    in_doubt = severity == "high" and ranked.analysis == trace_health.ANALYSIS.name
    return SEVERITIES.index(severity), not in_doubt, -_likely_ns(ranked.finding)
