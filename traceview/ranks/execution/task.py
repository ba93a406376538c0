"""The task of a worker: load a recording, analyze it, return the figures of its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import traceview
from traceview.errors import InputError
from traceview.facts.steps.inferred import with_steps
from traceview.ranking import RankedFinding
from traceview.ranks.execution.inputs import RankFile
from traceview.ranks.extraction import rank_figures, rank_trace
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
        raise _without_gpu_work(trace.run.get("exit_status", "0"))
    own = rank_trace.rank_traces(trace)
    traces = {id(each): each for each in own}
    summaries = {name: _own_report(each) for name, each in traces.items()}
    return tuple(
        replace(figures, path=file.path, **summaries[id(each)])
        for figures, each in zip(ranks, own, strict=True)
    )


def _without_gpu_work(exit_status: str) -> InputError:
    if exit_status in ("0", "130"):
        return InputError("no GPU work was recorded", "record the rank while it works on its GPU")
    what = f"no GPU work was recorded: the program ended with exit status {exit_status[:8]}"
    return InputError(what, "events that were not yet saved are lost when a program is killed")


def _own_report(trace: Trace) -> dict[str, Any]:
    """Verdict, findings and warnings of a rank's own report."""
    report = without_tables(trace)
    return {
        "verdict": report.verdict.text if report.verdict else "",
        "limit": report.verdict.limit if report.verdict else "unknown",
        "findings": tuple(map(_finding, report.findings[:_MOST_FINDINGS])),
        "warnings": report.trace.warnings,
    }


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
