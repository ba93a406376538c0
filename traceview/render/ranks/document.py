"""A job as every output shows it: head, figures, findings, the listed ranks, its document."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from traceview.base import units
from traceview.base.failures import FailureWarning
from traceview.base.findings import Finding, LoopTime, forecast
from traceview.base.intervals import Intervals
from traceview.base.tables import NULL, Array, Cell, Column, Table, TableSpec
from traceview.render.document import Document, Entries, ScoreTile, Section, Sheet
from traceview.traces.plan import RankedFinding
from traceview.traces.ranking import unrecorded
from traceview.traces.ranks.job import JobReport, JobVerdict
from traceview.traces.ranks.process_groups import missing_ranks, ranks_text, world_size
from traceview.traces.ranks.tables import RANKS, TABLES

_MOST_NAMED = 4
_NOT_ONE_JOB = (
    "No collective connects these recordings, so no rank waits for another. Read each alone "
    "(traceview report FILE), or compare two runs (traceview compare BEFORE AFTER)."
)


def job_title(job: JobReport) -> str:
    """The name of the recordings' folder, or of the only file."""
    paths = sorted({rank.path for rank in job.ranks} | {each.path for each in job.failed})
    if len(paths) == 1:
        return PurePath(paths[0]).name
    folders = {PurePath(path).parent.name for path in paths}
    return folders.pop() if len(folders) == 1 and "" not in folders else f"{len(paths)} recordings"


def job_facts(job: JobReport) -> list[tuple[str, str]]:
    """The known facts about a job, as pairs of name and value."""
    hosts = {rank.name.host for rank in job.ranks if rank.name.host}
    gpus = Counter(rank.name.gpu for rank in job.ranks if rank.name.gpu)
    # The number of ranks, such as `8`, or `7 of 8`.
    size = world_size(job.ranks)
    some = units.count(len(job.ranks))
    facts = [
        ("ranks", some if len(job.ranks) == size else f"{some} of {units.count(size)}"),
        ("hosts", ", ".join(sorted(hosts)) if len(hosts) <= _MOST_NAMED else str(len(hosts))),
        ("GPUs", ", ".join(f"{count} × {name}" for name, count in gpus.most_common(_MOST_NAMED))),
        ("steps", units.count(job.verdict.steps) if job.verdict.steps else ""),
        ("recorded by", ", ".join(sorted({rank.recorder for rank in job.ranks}))),
        ("clocks", clocks_text(job)),
    ]
    return [(name, value) for name, value in facts if value]


def nothing_found(job: JobReport) -> str:
    """The sentence to show if there are no findings."""
    if len(job.ranks) == 1:
        return "One rank alone waits for no other. Read its own report: traceview report FILE"
    if not job.matched:
        return _NOT_ONE_JOB
    # Those of "low" alone are in the report of most ranks.
    found = [each for each in job.ranks if {"high", "medium"} & {f.severity for f in each.findings}]
    if found:
        rank = found[0].name.rank
        return (
            "Nothing was found that the ranks lose to each other. The report of one rank has "
            f"findings of its own: --rank {rank}."
        )
    return "Nothing was found that would save time."


def single_values(job: JobReport) -> frozenset[str]:
    """Names of the columns that have one value in the whole job."""
    return frozenset({"host"} if len({rank.name.host for rank in job.ranks}) < 2 else ())


def clocks_text(job: JobReport) -> str:
    """A sentence on how well times of different ranks compare; empty for a single rank."""
    error = job.clocks.error_ns[job.clocks.error_ns != NULL]
    if len(job.ranks) < 2:
        return ""
    if not len(error):
        return "not aligned"
    if not error.any() and len(error) == len(job.ranks):
        return "the same for all"
    apart = len(np.unique(job.clocks.component)) > 1
    return f"aligned within {units.duration(int(error.max()))}{', in parts' if apart else ''}"


def warnings(job: JobReport) -> list[str]:
    """AnswerParts that failed, recordings that could not be read, and ranks without one."""
    failed = [f"{PurePath(each.path).name}: {each.reason}" for each in job.failed]
    texts = [_listed(f"{units.counted(len(failed), 'recording')} left out", failed)]
    return [text for text in (*_failures(job), *texts, *_absent(job)) if text]


def _failures(job: JobReport) -> list[str]:
    """The warnings that parts of the answer, or of the own reports of ranks, failed."""
    ranks: dict[str, list[int]] = {}
    for each in job.ranks:
        for text in each.warnings:
            if isinstance(text, FailureWarning):
                ranks.setdefault(text, []).append(each.name.rank)
    own = [f"rank {ranks_text(numbers)}: {text}" for text, numbers in ranks.items()]
    return [*job.warnings, *own]


def remedies(job: JobReport) -> list[tuple[str, str, str]]:
    """File, reason and remedy of each recording that could not be read."""
    return [(each.path, each.reason, each.remedy) for each in job.failed]


def _absent(job: JobReport) -> list[str]:
    """A warning that names the ranks without a recording, if rank numbers are known."""
    absent = missing_ranks(job.ranks)
    if not absent:
        return []
    noun = "rank" if len(absent) == 1 else "ranks"
    size = units.count(world_size(job.ranks))
    return [f"no recording of {noun} {ranks_text(absent)}, of {size}"]


def _listed(lead: str, texts: Sequence[str]) -> str:
    return f"{lead}: {units.first(texts, _MOST_NAMED, '; ')}" if texts else ""


def ranked_findings(job: JobReport) -> tuple[RankedFinding, ...]:
    """The findings, worst first, each with the table that shows it and its forecast."""
    told = job.verdict
    rows = tuple(
        RankedFinding(
            each.evidence.table or "ranks",
            each,
            (saving := forecast(each, _loop(job, each)))
            and replace(saving, is_mean=bool(saving.step_ns) and told.is_uneven),
        )
        for each in job.result.findings
    )
    return unrecorded(rows, told.step_median_ns or 0, told.step_unrecorded_ns)


def _loop(job: JobReport, finding: Finding) -> tuple[LoopTime, ...]:
    """The steps that a finding's share refers to, as one loop; empty without steps or a share."""
    share, told = finding.share_of_step_pct, job.verdict
    if not share or not told.steps or not told.step_median_ns:
        return ()
    total = round(100.0 * finding.time_at_stake_ns / share)
    none = np.zeros(0, np.int64)
    step_ns = told.step_mean_ns if told.is_uneven else told.step_median_ns
    return (LoopTime(Intervals(none, none), total, step_ns or 0),)


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
    least = ""
    if len(table):
        rank, busy = _rank_of(table, "busy_pct", least=True), float(table["busy_pct"].min())
        least = f"mean; rank {rank}: {units.percent(busy)}"
    yield ScoreTile("gpu_busy_pct", "GPU busy", units.percent(verdict.gpu_busy_pct), least)
    mean = ", mean" if verdict.steps else ""
    yield _mean(table, "exposed_ns", "Communication", f"exposed{mean}")
    yield _mean(table, "wait_ns", "Waiting", _exposed_wait(verdict, table))
    yield _latest(table, mean)


def _exposed_wait(verdict: JobVerdict, table: Table) -> str:
    """The part of the waits that compute does not hide, and that costs time."""
    waited = verdict.figures.get("exposed_wait_ns")
    if waited is None:
        return "mean"
    wait_ns = _mean_over_ranks(table, "wait_ns") or 0
    # Both are rounded, each from its own sum.
    if waited >= math.floor(wait_ns):
        return "mean, all exposed"
    return f"mean, {units.percent(100.0 * waited / wait_ns)} exposed"


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


MOST_SINGLE = 10
"""Most ranks for which each has its own row."""
MOST_OUTLIERS = 4
_BRIEF = (
    *("rank", "compute_ns", "wait_ns", "late_ns", "idle_ns", "cause", "place", "exposed_ns"),
    *("hidden_ns", "busy_pct", "step_median_ns", "host", "peak_memory_bytes"),
)
_COMPARED = ("step_median_ns", "compute_ns", "exposed_ns", "idle_ns", "late_ns")
_SAME_STEP = 0.01
"""Steps of ranks that wait for each other last equally long: below this relative spread of step
times, their column moves back."""
_LEAST_SHARE, _LEAST_SPREADS = 0.03, 8.0
"""Least deviation of an outlier, as a fraction of a step and in median deviations."""
_SPREAD: tuple[tuple[str, Callable[[Array], float]], ...] = (
    ("least of", lambda values: values.min()),
    ("median of", lambda values: float(np.median(values))),
    ("most of", lambda values: values.max()),
)


def rank_rows(job: JobReport) -> tuple[TableSpec, Table]:
    """The table of ranks: all of a few; of many the outliers, and the spread of the others.

    Its first column, `rank`, is text: a rank's number, or `least of`, `median of` or `most of` the
    others.
    """
    table = job.result.tables["ranks"]
    spec = _spec(table)
    if len(table) <= MOST_SINGLE:
        return spec, Table.from_rows(spec.columns, map(_named, table.rows()))
    single = outliers(job)[:MOST_OUTLIERS]
    others = table.take(np.setdiff1d(np.arange(len(table)), single))
    listed = [_named(row) for row in table.take(np.array(single, np.int64)).rows()]
    return spec, Table.from_rows(spec.columns, [*listed, *_spread(others)])


def outliers(job: JobReport) -> list[int]:
    """Rows of the ranks that others wait for, then of those that deviate most."""
    table = job.result.tables["ranks"]
    place = {int(rank): row for row, rank in enumerate(table["rank"])}
    late = [place[int(rank)] for rank in job.result.tables["stragglers"]["rank"]]
    apart = _apart(table)
    order = [int(row) for row in np.argsort(-apart, kind="stable") if apart[row] > 0]
    return list(dict.fromkeys([*late, *order]))


def _apart(table: Table) -> Array:
    """The largest deviation of each rank in median deviations; 0 if it is like the others."""
    result = np.zeros(len(table))
    step = _filled(table, "step_median_ns")
    least = _LEAST_SHARE * float(np.median(step)) if len(step) else 0.0
    for name in _COMPARED:
        values = _filled(table, name)
        away = np.abs(values - np.median(values)) if len(values) else result
        usual = max(float(np.median(away)), 1.0) if len(away) else 1.0
        differs = (away > least) & (away > _LEAST_SPREADS * usual)
        result = np.maximum(result, np.where(differs, away / usual, 0.0))
    return result


def _filled(table: Table, name: str) -> Array:
    return np.where(table.is_null(name), 0, table[name]).astype(float)


def _spec(table: Table) -> TableSpec:
    """The TableSpec of the rows: the figures of a rank, most informative first."""
    step = _filled(table, "step_median_ns")
    differ = len(step) > 0 and np.ptp(step) > _SAME_STEP * step.max()
    brief = ("rank", "step_median_ns", *_BRIEF[1:]) if differ else _BRIEF
    columns = {column.name: column for column in RANKS.columns}
    shown = {"rank": replace(columns.pop("rank"), dtype="text"), **columns}
    names = tuple(dict.fromkeys(brief))
    return replace(RANKS, columns=tuple(shown[name] for name in names), brief=" ".join(names))


def _named(row: dict[str, Cell]) -> dict[str, Cell]:
    return {**row, "rank": str(row["rank"])}


def _spread(table: Table) -> list[dict[str, Cell]]:
    count = units.count(len(table))
    return [
        {c.name: _summed(c, table, of) for c in RANKS.columns} | {"rank": f"{word} {count}"}
        for word, of in _SPREAD
    ]


def _summed(column: Column, table: Table, of: Callable[[Array], float]) -> Cell:
    """A numeric column reduced by `of` over all ranks; None for texts."""
    if column.dtype == "text":
        return None
    values = table[column.name][~table.is_null(column.name)]
    if not len(values):
        return None
    return float(of(values)) if column.dtype == "float64" else round(float(of(values)))


def job_document(job: JobReport) -> Document:
    """A job's answers; sections below that of the ranks have its other tables."""
    return Document(
        title=job_title(job),
        facts=tuple(f"{name} {value}" for name, value in job_facts(job)),
        headline=job.verdict.text,
        tiles=job_tiles(job),
        warnings=tuple(("Warning", text) for text in warnings(job)),
        findings=ranked_findings(job),
        nothing_found=nothing_found(job),
        sections=tuple(_sections(job)),
        notes=job.result.notes,
    )


def _sections(job: JobReport) -> Iterator[Section]:
    if job.failed:
        entries = tuple((path, remedy) for path, _, remedy in remedies(job))
        yield Section("What to do about them", (Entries(entries),))
    ranks = Sheet(*rank_rows(job), single_values(job), titled=False)
    yield Section("Ranks", (ranks,), aside=False)
    for spec, table in job.result.shown(TABLES[1:]):
        if len(table) and not spec.detail:
            yield Section(spec.name.replace("_", " "), (Sheet(spec, table),))
