"""The ranks that a short output lists individually, and the spread of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.ranks.job import JobReport
from traceview.ranks.tables import RANKS
from traceview.tables import Array, Cell, Column, Table

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
    return replace(RANKS, columns=tuple(shown[name] for name in names), brief=names)


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
