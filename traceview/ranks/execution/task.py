"""The task of a worker: load a recording, analyze it, return the figures of its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import traceview
from traceview.errors import InputError
from traceview.facts.steps.inferred import with_steps
from traceview.ranks.execution.inputs import RankFile
from traceview.ranks.extraction import owners, rank_figures
from traceview.ranks.figures import RankFigures, RankFinding
from traceview.report import without_tables
from traceview.trace import Trace

_MOST_FINDINGS = 5


def figures_of_file(file: RankFile) -> tuple[RankFigures, ...]:
    """The figures of a recording's ranks, each with the first findings of its own report.

    Raises InputError for a recording without GPU work, and what `traceview.load` raises.
    """
    trace = with_steps(traceview.load(file.path))
    ranks = rank_figures.figures_of_ranks(trace)
    if not ranks:
        what, exit_status = "no GPU work was recorded", trace.run.get("exit_status", "0")
        if exit_status in ("0", "130"):
            raise InputError(what, "record the rank while it works on its GPU")
        raise InputError(
            f"{what}: the program ended with exit status {exit_status[:8]}",
            "events that were not yet saved are lost when a program is killed",
        )
    # Ranks of one process share a trace, and its report.
    traces = owners.rank_traces(trace)
    summaries = {key: _summary(of) for key, of in {id(of): of for of in traces}.items()}
    return tuple(
        replace(figures, path=file.path, **summaries[id(of)])
        for figures, of in zip(ranks, traces, strict=True)
    )


def _summary(trace: Trace) -> dict[str, Any]:
    """Verdict, findings and warnings of a rank's own report."""
    report = without_tables(trace)
    findings = (
        RankFinding(
            ranked.analysis,
            ranked.finding.severity,
            ranked.finding.message,
            ranked.finding.action,
            ranked.finding.time_at_stake_ns,
            ranked.finding.share_of_step_pct,
        )
        for ranked in report.findings[:_MOST_FINDINGS]
    )
    return {
        "verdict": report.verdict.text if report.verdict else "",
        "limit": report.verdict.limit if report.verdict else "unknown",
        "findings": tuple(findings),
        "warnings": report.trace.warnings,
    }
