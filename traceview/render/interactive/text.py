"""The `repr` of the public types: at most a screen of plain lines, harmless whatever the names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from textwrap import wrap

import numpy as np

from traceview.base import units
from traceview.base.findings import Finding
from traceview.base.tables import Array, Column, Table, TableSpec, Texts
from traceview.render.base.safe_text import visible
from traceview.render.base.text import cells, drawn, fitting
from traceview.render.comparison.document import sides
from traceview.render.ranks.text import render_job
from traceview.render.report.document import Claim, claim, header_facts, ranked_claim
from traceview.render.screen import render_screen
from traceview.traces.analyses.base import Result, Skipped
from traceview.traces.comparison import wording
from traceview.traces.comparison.changes import main_changes
from traceview.traces.comparison.comparison import RunComparison
from traceview.traces.plan import RankedFinding
from traceview.traces.ranks.job import JobReport
from traceview.traces.reporting import Report, facts_of
from traceview.traces.trace import Trace

Displayable = (
    Trace | Report | Result | Skipped | Table | Finding | RankedFinding | RunComparison | JobReport
)

WIDTH = 99
"""One less than 100, to leave room for the closing bracket of the last line."""
MOST_ROWS = 10
_MOST_LINES = 3


@singledispatch
def described(value: Displayable) -> str:
    """The `repr` of a value."""
    raise TypeError(f"{type(value).__name__} has no description")


@described.register
def _(value: Trace) -> str:
    facts = facts_of(value)
    counts = ", ".join(f"{name} {units.count(rows)}" for name, rows in facts.row_counts.items())
    lines = [f"<Trace {visible(value.path)}"]
    about = [(name, text) for name, text in header_facts(facts) if name != "contains"]
    for name, text in [*about, ("rows", counts)]:
        lines += paragraph(f"  {name:<14}", text, indent=16)
    return "\n".join(lines) + ">"


@described.register
def _(value: Report) -> str:
    shown = render_screen(value, width=WIDTH - len("<Report ")).rstrip()
    # The last line is on options of the command.
    return f"<Report {shown.rpartition('More: ')[0].rstrip()}>"


@described.register
def _(value: JobReport) -> str:
    return render_job(value).rstrip("\n")


@described.register
def _(value: Result) -> str:
    name = f" of {value.analysis.name}" if value.analysis else ""
    lines = [f"<Result{name}: {units.counted(len(value.findings), 'finding')}"]
    charts = {chart.table for chart in value.analysis.charts} if value.analysis else set()
    width = max(map(len, value.tables), default=0)
    for table, rows in value.tables.items():
        chart = ", chart" if table in charts else ""
        lines.append(f"  {table:<{width}}  {units.counted(len(rows), 'row')}{chart}")
    figures = [f"{units.stem(n)} {units.quantity(n, v)}" for n, v in value.summary.items()]
    lines += paragraph("  ", " · ".join(figures)) if figures else []
    for note in value.notes[:2]:
        lines += paragraph("  note: ", note, indent=4)
    return "\n".join(lines) + ">"


@described.register
def _(value: Skipped) -> str:
    lines = [*paragraph("<Skipped: ", value.reason, indent=2)]
    return "\n".join([*lines, *paragraph("  → ", value.remedy, indent=4)]) + ">"


@described.register
def _(value: Table) -> str:
    names = ", ".join(column.name for column in value.columns)
    lines = [f"<Table: {shape(value)}", *paragraph("  ", names)]
    if len(value):
        spec, head = as_shown(value, MOST_ROWS, prose=False)
        grid = drawn([cells(fitting(spec, head, WIDTH - 2))], WIDTH - 2, color=False)
        lines += [f"  {line}" for line in grid.splitlines()]
    more = len(value) - MOST_ROWS
    lines += [f"  … and {units.counted(more, 'more row')}"] if more > 0 else []
    return "\n".join(lines) + ">"


@described.register
def _(value: Finding) -> str:
    return f"<Finding\n{_whole_finding(value, '', claim(value))}>"


@described.register
def _(value: RankedFinding) -> str:
    end = f"  [{value.analysis}]"
    shown = _whole_finding(value.finding, end, ranked_claim(value))
    return f"<RankedFinding\n{shown}>"


def _whole_finding(value: Finding, end: str, claimed: Claim | None) -> str:
    lines = list(_finding(value, end, claimed))
    subject = visible(f"{value.subject.kind} {value.subject.name}".rstrip())
    lines += paragraph("  about ", subject, indent=4)
    lines += paragraph("  → ", value.action, indent=4) if value.action else []
    return "\n".join(lines)


@described.register
def _(value: RunComparison) -> str:
    names = " → ".join(visible(name) for name in sides(value))
    lines = [*paragraph("<RunComparison of ", names, indent=2)]
    lines += paragraph("  ", wording.headline(value))
    for change in main_changes(value):
        lines += paragraph("  - ", change.text, indent=4)
    return "\n".join(lines) + ">"


def _finding(finding: Finding, end: str, claimed: Claim | None) -> Iterator[str]:
    """Severity and saving in one line, and the message in at most _MOST_LINES."""
    amount = f": {claimed.parts()[0]}" if claimed else ""
    yield f"  {finding.severity}{amount}{end}"
    yield from paragraph("    ", finding.message)


def paragraph(lead: str, text: str, indent: int | None = None) -> list[str]:
    """The text behind its lead, in at most _MOST_LINES lines of WIDTH."""
    margin = " " * (len(lead) if indent is None else indent)
    lines = wrap(visible(text, 1_000), WIDTH, initial_indent=lead, subsequent_indent=margin)
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"{lines[_MOST_LINES - 1][: WIDTH - 2]} …"]
    return lines


def shape(table: Table) -> str:
    """The size of a table in words."""
    rows, columns = units.counted(len(table), "row"), units.counted(len(table.columns), "column")
    return f"{rows} × {columns}"


def as_shown(table: Table, most: int, *, prose: bool = True) -> tuple[TableSpec, Table]:
    """The first rows of any table, and a TableSpec that keeps the order of its columns.

    Bytes, such as the code of kernels, become their size. Without `prose`, sentences are cut to
    one line like names.
    """
    head = table.take(np.arange(min(len(table), most)))
    columns = tuple(_shown_column(column, prose) for column in table.columns)
    data = {c.name: _shown_values(head, c) for c in table.columns}
    spec = TableSpec("table", "", columns, " ".join(column.name for column in columns))
    return spec, Table(columns, data)


def _shown_column(column: Column, prose: bool) -> Column:
    if column.dtype != "bytes":
        return replace(column, prose=column.prose and prose)
    return Column(column.name, "text", column.meaning, nullable=True)


def _shown_values(table: Table, column: Column) -> Texts | Array:
    if column.dtype == "text":
        return table.texts(column.name)
    if column.dtype == "bytes":
        return Texts.of(
            None if value is None else units.size(len(value)) for value in table[column.name]
        )
    return table[column.name]
