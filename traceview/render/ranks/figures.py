"""The main figures of a job as text, and its findings with their forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceview import units
from traceview.findings import Finding, LoopTime, forecast
from traceview.intervals import Intervals
from traceview.ranking import RankedFinding
from traceview.ranks.job import JobReport, JobVerdict
from traceview.ranks.membership import world_size
from traceview.render.report.scoreboard import ScoreTile
from traceview.tables import NULL, Table


def ranked_findings(job: JobReport) -> tuple[RankedFinding, ...]:
    """The findings, worst first, each with the table that shows it and its forecast."""
    return tuple(
        RankedFinding(each.evidence.table or "ranks", each, forecast(each, _loop(job, each)))
        for each in job.result.findings
    )


def _loop(job: JobReport, finding: Finding) -> tuple[LoopTime, ...]:
    """The steps that a finding's share refers to, as one loop; empty without steps or a share.

    Its step time is the mean: a rank that is late in some steps does not show in the median step.
    """
    share, steps = finding.share_of_step_pct, job.verdict.steps
    if not share or not steps or not job.verdict.step_median_ns:
        return ()
    total = round(100.0 * finding.time_at_stake_ns / share)
    none = np.zeros(0, np.int64)
    return (LoopTime(Intervals(none, none), total, round(total / steps)),)


def job_tiles(job: JobReport) -> tuple[ScoreTile, ...]:
    """Ranks, step, GPU busy, communication, waits and lateness as text: means over the steps."""
    return tuple(_tiles(job))


def _tiles(job: JobReport) -> Iterator[ScoreTile]:
    verdict, table = job.verdict, job.result.tables["ranks"]
    hosts = len({rank.name.host for rank in job.ranks})
    size = world_size(job.ranks)
    of = f"of {units.count(size)} " if size > len(job.ranks) else ""
    on = f"{of}on {units.counted(hosts, 'host')}"
    yield ScoreTile("ranks", "Ranks", units.count(len(job.ranks)), on)
    steps = f"median of {units.count(verdict.steps)}" if verdict.steps else "no steps found"
    yield ScoreTile("step_median_ns", "Step", units.duration(verdict.step_median_ns), steps)
    least = f"least: rank {_rank_of(table, 'busy_pct', least=True)}" if len(table) else ""
    yield ScoreTile("gpu_busy_pct", "GPU busy", units.percent(verdict.gpu_busy_pct), least)
    mean = ", mean" if verdict.steps else ""
    yield _mean(table, "exposed_ns", "Communication", f"exposed{mean}")
    yield _mean(table, "wait_ns", "Waiting", _exposed_wait(verdict, table))
    yield _latest(table, mean)


def _exposed_wait(verdict: JobVerdict, table: Table) -> str:
    """The part of the waits that compute does not hide, and that costs time."""
    waited = verdict.figures.get("exposed_wait_ns")
    if waited is None:
        return ""
    # Both are rounded, each from its own sum.
    if waited >= math.floor(_mean_over_ranks(table, "wait_ns") or 0):
        return "all exposed"
    return f"{units.duration(waited)} exposed"


def _mean(table: Table, name: str, title: str, detail: str) -> ScoreTile:
    """The mean of a column over all ranks."""
    mean = _mean_over_ranks(table, name)
    value = "none" if mean == 0 else units.duration(mean) if mean else "unknown"
    return ScoreTile(name, title, value, detail if mean else "")


def _mean_over_ranks(table: Table, name: str) -> float | None:
    values = table[name][~table.is_null(name)]
    return float(values.mean()) if len(values) else None


def _latest(table: Table, mean: str) -> ScoreTile:
    """The rank that others wait for most."""
    late = table["late_ns"][~table.is_null("late_ns")]
    if not len(late) or late.max() <= 0:
        return ScoreTile("late_ns", "Late", "none" if len(late) else "unknown")
    rank = f"rank {_rank_of(table, 'late_ns')}{mean}"
    return ScoreTile("late_ns", "Late", units.duration(int(late.max())), rank)


def _rank_of(table: Table, name: str, least: bool = False) -> int:
    """The rank with the greatest or least value of a column."""
    values = table[name]
    if values.dtype.kind == "i":
        values = np.where(values == NULL, 0, values)
    return int(table["rank"][values.argmin() if least else values.argmax()])
