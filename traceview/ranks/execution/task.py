"""What a worker does: read a recording, report on it, keep the figures of its ranks."""

from __future__ import annotations

from dataclasses import replace

import traceview
from traceview.errors import InputError
from traceview.facts.steps.inferred import with_steps
from traceview.ranking import RankedFinding
from traceview.ranks.execution.inputs import RankFile
from traceview.ranks.extraction.rank_figures import figures_of_ranks
from traceview.ranks.extraction.rank_trace import rank_traces
from traceview.ranks.figures import RankFigures, RankFinding
from traceview.report import Report, analyze

_MOST_FINDINGS = 5


def figures_of_file(file: RankFile) -> tuple[RankFigures, ...]:
    """The ranks of a recording, each with the first findings of its own report.

    Raises InputError for a recording without GPU work, and what `traceview.load` raises.
    """
    trace = with_steps(traceview.load(file.path))
    ranks = figures_of_ranks(trace)
    if not ranks:
        raise InputError("no GPU work was recorded", "record the rank while it works on its GPU")
    own = rank_traces(trace)
    traces = {id(each): each for each in own}
    # The other cores read other ranks: two threads would only wait for each other.
    told = {name: analyze(each, threads=1) for name, each in traces.items()}
    return tuple(
        _with_report(replace(figures, path=file.path), told[id(each)])
        for figures, each in zip(ranks, own, strict=True)
    )


def _with_report(figures: RankFigures, report: Report) -> RankFigures:
    verdict = report.verdict
    return replace(
        figures,
        verdict=verdict.text if verdict else "",
        limit=verdict.limit if verdict else "unknown",
        findings=tuple(map(_finding, report.findings[:_MOST_FINDINGS])),
    )


def _finding(ranked: RankedFinding) -> RankFinding:
    finding = ranked.finding
    return RankFinding(
        ranked.analysis,
        finding.severity,
        finding.message,
        finding.action,
        finding.time_at_stake_ns,
        finding.share_of_step_pct,
    )
