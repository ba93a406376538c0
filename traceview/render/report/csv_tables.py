"""The tables of a report as CSV, one file per table, with every row.

A spreadsheet evaluates a text cell that begins like a formula, and the traced program chose the
names in a trace: such a cell gets an apostrophe in front. Control characters are escaped.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from traceview.analyses.base import Result
from traceview.analyses.verdict import SCOREBOARD
from traceview.render.base.safe_text import visible
from traceview.report import Report
from traceview.tables import Cell, Table

_LONGEST = 32_000
"""Spreadsheets cut a cell at 32,767 characters."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
_ROWS_AT_ONCE = 50_000


def csv_tables(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    """File names, such as `gpu-idle.causes.csv`, each with its text in pieces."""
    if report.scoreboard:
        row = Table.from_rows(SCOREBOARD, [dict(vars(report.scoreboard))])
        yield "scoreboard.csv", csv_text(row)
    yield "findings.csv", csv_text(report.findings_table())
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if isinstance(outcome, Result):
            for spec in analysis.tables:
                yield f"{analysis.name}.{spec.name}.csv", csv_text(outcome.tables[spec.name])


def csv_text(table: Table) -> Iterator[str]:
    """A table with its column names first; absent values are empty."""
    yield _lines([[column.name for column in table.columns]])
    for first in range(0, len(table), _ROWS_AT_ONCE):
        part = table.take(np.arange(first, min(first + _ROWS_AT_ONCE, len(table))))
        columns = [_cells(part, column.name) for column in table.columns]
        yield _lines(zip(*columns, strict=True))


def _cells(table: Table, name: str) -> Sequence[Cell | str]:
    known: dict[str, str] = {}
    return [_cell(value, known) for value in table.cells(name)]


def _cell(value: Cell, known: dict[str, str]) -> Cell | str:
    if isinstance(value, bytes):
        return len(value)
    if not isinstance(value, str):
        return "" if value is None or value != value else value
    if value not in known:
        known[value] = safe_cell(value)
    return known[value]


def safe_cell(text: str) -> str:
    """The text on one line, changed so that no spreadsheet takes it for a formula."""
    shown = visible(text, _LONGEST)
    return f"'{shown}" if text.startswith(_FORMULA) else shown


def _lines(rows: Iterable[Iterable[Cell | str]]) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()
