"""Findings of a report in order: worst first, each loss said once, no more than can be acted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from traceview.analyses import trace_health
from traceview.analyses.base import Result, Skipped
from traceview.findings import SEVERITIES, Finding, Forecast, forecast

Outcome = Result | Skipped

MOST_ABOVE_INFO = 7
"""Nobody acts on more in one go; further findings are `info`."""


@dataclass(frozen=True)
class RankedFinding:
    """A finding, the name of the analysis that reports it, and what acting on it wins at most."""

    analysis: str
    finding: Finding
    forecast: Forecast | None = None


def ranked(
    outcomes: Mapping[str, Outcome], step_ns: int | None = None, steady_ns: int | None = None
) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by time at stake; ties keep reading order.

    A finding that puts the whole recording in doubt comes first of all. Of findings that share a
    cause those of one analysis keep their severity, the others become `info`, and so do all after
    the first seven. `step_ns` is the median step, `steady_ns` the longest steady time of a device:
    no finding can save more of it.
    """
    findings = [
        RankedFinding(name, _within(finding, steady_ns))
        for name, outcome in outcomes.items()
        if isinstance(outcome, Result)
        for finding in outcome.findings
    ]
    in_order = sorted(_one_analysis_per_cause(findings), key=_rank)
    limited = (*in_order[:MOST_ABOVE_INFO], *map(_as_info, in_order[MOST_ABOVE_INFO:]))
    return tuple(replace(each, forecast=forecast(each.finding, step_ns)) for each in limited)


def _within(finding: Finding, steady_ns: int | None) -> Finding:
    """The finding with no more time at stake than the steady time that it claims a share of."""
    if not steady_ns or finding.share_of_step_pct is None or finding.time_at_stake_ns <= steady_ns:
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


def _as_info(ranked: RankedFinding) -> RankedFinding:
    return replace(ranked, finding=replace(ranked.finding, severity="info"))


def _rank(ranked: RankedFinding) -> tuple[int, bool, int]:
    severity, at_stake = ranked.finding.severity, ranked.finding.time_at_stake_ns
    in_doubt = severity == "high" and ranked.analysis == trace_health.ANALYSIS.name
    return SEVERITIES.index(severity), not in_doubt, -at_stake
