"""A document: what an answer shows, in reading order. Builders fill it; each format lays it out.

It holds names as recorded: a renderer escapes and shortens them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Cell, Integers, Table, TableSpec
from traceview.traces.analyses.base import Skipped
from traceview.traces.plan import RankedFinding


@record
class Sheet:
    """The first rows of a table of an answer, below its name and meaning if `titled`.

    `single` names the columns that have one value in the whole recording.
    """

    spec: TableSpec
    table: Table
    single: frozenset[str] = frozenset()
    titled: bool = True


@record
class GridRow:
    """The cells of one row; `strong` rows sum others."""

    cells: tuple[str, ...]
    strong: bool = False


@record
class Grid:
    """A table laid out by its builder: columns of names, then of numbers, then of sentences.

    Cells of numbers are the product's own texts, which need no escapes.
    """

    names: tuple[str, ...]
    rows: tuple[GridRow, ...]
    numbers: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()


@record
class Entries:
    """Sentences, each behind a figure or, unless `figures`, behind the name of its subject."""

    entries: tuple[tuple[str, str], ...]
    figures: bool = False


@record
class Section:
    """Parts below a title. `aside` sections are opened by those who want to know more."""

    title: str
    parts: tuple[Sheet | Grid | Entries | Skipped, ...]
    aside: bool = True


@record
class ScoreTile:
    """One figure: name, value, and a detail such as its whole. `field` is its Scoreboard field."""

    field: str
    name: str
    value: str
    detail: str = ""


@record
class Document:
    """An answer. An absent part is empty; `nothing_found` replaces an empty list of findings.

    `title` names the only subject; where there are two, the first of the `facts` does. `warnings`
    are pairs of what they warn of and a text. `shares` says what parts of a recording the answer is
    about, `plan` what the findings win one after another.
    """

    title: str = ""
    facts: tuple[str, ...] = ()
    headline: str = ""
    shares: str = ""
    tiles: tuple[ScoreTile, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    plan: str = ""
    findings: tuple[RankedFinding, ...] = ()
    nothing_found: str = ""
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()


# The rows of a table that a document shows, and the sums of those it leaves out.
#
# A training run can have a million rows, one per path and kernel. The rows that matter come
# first, so a document has as many as somebody may want to look at, and the sums of the rest.

MOST_ROWS = 10_000


@record
class LimitedTable:
    """A table, or part of one; `left_out` counts the other rows, 0 for a whole table.

    `kept` describes the rows in `table`, `rows` has their numbers in the whole table, None for all.
    `sums` has the sum over the rows left out of each column whose values may be added up.
    """

    table: Table
    left_out: int = 0
    kept: str = ""
    sums: Mapping[str, Cell] = field(default_factory=dict)
    rows: Integers | None = None

    def place(self, row: int) -> int:
        """The row in `table` of a row of the whole table, which must not be left out."""
        return row if self.rows is None else int(np.searchsorted(self.rows, row))


def limited(
    spec: TableSpec, table: Table, most: int | None, also: Sequence[int] = ()
) -> LimitedTable:
    """Limit a table to `most` rows plus the rows `also`, in order; all if `most` is None."""
    if most is None or len(table) <= most:
        return LimitedTable(table)
    chosen, kept = _chosen(spec, table, most)
    rows = np.array(sorted({*chosen.tolist(), *also}), np.int64)
    sums = {name: table.total(name, without=rows) for name in spec.adds.split()}
    return LimitedTable(table.take(rows), len(table) - len(rows), kept, sums, rows)


def _chosen(spec: TableSpec, table: Table, most: int) -> tuple[Integers, str]:
    if spec.keep is None:
        return np.arange(most), "the first"
    values = table[spec.keep.column]
    worth = values.astype(np.float64) * (1 if spec.keep.greatest else -1)
    worth[table.is_null(spec.keep.column)] = -np.inf
    best = np.argsort(-worth, kind="stable")[:most]
    which = "greatest" if spec.keep.greatest else "least"
    return np.sort(best), f"those of the {which} {spec.keep.column}"
