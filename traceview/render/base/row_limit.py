"""The rows of a table that a document holds, and what those add up to that it leaves out.

A training run has a row for each path and kernel: a million of them. The rows that matter come
first, so a document holds as many as somebody may want to look at, and the sums of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from traceview.analyses.base import TableSpec
from traceview.tables import Array, Cell, Integers, Table

MOST_ROWS = 10_000


@dataclass(frozen=True)
class Leading:
    """A table, or part of one. `left_out` counts the other rows, and is 0 where it is whole.

    `kept` says which rows are there. `sums` are those of the others, by column; only columns that
    count nothing twice have one.
    """

    table: Table
    left_out: int = 0
    kept: str = ""
    sums: Mapping[str, Cell] = field(default_factory=dict)


def leading(spec: TableSpec, table: Table, most: int | None) -> Leading:
    """At most so many rows, all if `most` is None; they keep their order."""
    if most is None or len(table) <= most:
        return Leading(table)
    rows, kept = _chosen(spec, table, most)
    others = np.ones(len(table), bool)
    others[rows] = False
    sums = {name: _sum(table, name, others) for name in spec.adds}
    return Leading(table.take(rows), len(table) - most, kept, sums)


def _chosen(spec: TableSpec, table: Table, most: int) -> tuple[Integers, str]:
    if spec.keep is None:
        return np.arange(most), "the first"
    values = table[spec.keep.column]
    worth = values.astype(np.float64) * (1 if spec.keep.greatest else -1)
    worth[table.is_null(spec.keep.column)] = -np.inf
    best = np.argsort(-worth, kind="stable")[:most]
    which = "greatest" if spec.keep.greatest else "least"
    return np.sort(best), f"those of the {which} {spec.keep.column}"


def _sum(table: Table, name: str, rows: Array) -> Cell:
    values = table[name][rows & ~table.is_null(name)]
    return float(values.sum()) if values.dtype.kind == "f" else int(values.sum())
