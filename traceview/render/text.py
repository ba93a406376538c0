"""A report as text for a terminal or a pipe.

Nothing here is markup: every text is laid out as it stands, so a name with brackets stays one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import PurePath

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from traceview import units
from traceview.analyses.base import Analysis, Result, Severity, Skipped, TableSpec
from traceview.render.columns import GAP, fitting
from traceview.render.facts import header_facts
from traceview.render.names import visible
from traceview.report import Outcome, RankedFinding, Report
from traceview.tables import Table

MOST_ROWS = 10
_SENTENCE = 1_000
_SEVERITY_STYLES: dict[Severity, str] = {
    "high": "bold red",
    "medium": "bold yellow",
    "low": "bold cyan",
    "info": "dim",
}


def render_text(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The whole report in lines of at most `width` cells; with `color`, ANSI styles."""
    sections = [_answer(a, report.outcomes[a.name], width) for a in report.analyses]
    return _drawn([*_opening(report), *sections], width, color)


def render_summary(report: Report, *, width: int = 80, color: bool = False) -> str:
    """What the trace is and what to do first, without the answers behind it."""
    return _drawn(_opening(report), width, color)


def _drawn(blocks: Iterable[RenderableType], width: int, color: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for block in blocks:
            console.print(block)
            console.print()
    lines = captured.get().rstrip("\n").split("\n")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _opening(report: Report) -> list[RenderableType]:
    return [_header(report), _findings(report)]


def _header(report: Report) -> RenderableType:
    trace = report.trace
    grid = _grid("", "")
    for name, value in header_facts(trace):
        grid.add_row(Text(name, "dim"), _sentence(value))
    title = Text(visible(PurePath(trace.path).name), "bold")
    warnings = [_noted("Warning: ", text, "yellow") for text in trace.warnings]
    return Group(title, grid, *warnings)


def _findings(report: Report) -> RenderableType:
    heading = _heading("What to do first")
    if not report.findings:
        return Group(heading, Text("Nothing found that would save time."))
    grid = _grid("", "right", "")
    grid.add_row("", Text("at stake", "dim"), "")
    for finding in report.findings[:MOST_ROWS]:
        grid.add_row(*_finding_cells(finding))
    return Group(heading, grid, *_rest(len(report.findings) - MOST_ROWS))


def _finding_cells(ranked: RankedFinding) -> tuple[Text, Text, Text]:
    finding = ranked.finding
    said = _sentence(finding.message)
    if finding.action:
        said.append("\n→ ", "bold").append(visible(finding.action, _SENTENCE))
    said.append(f"  [{ranked.analysis}]", "dim")
    stake = units.duration(finding.time_at_stake_ns) if finding.time_at_stake_ns else ""
    return Text(finding.severity, _SEVERITY_STYLES[finding.severity]), Text(stake), said


def _answer(analysis: Analysis, outcome: Outcome, width: int) -> RenderableType:
    heading = _heading(analysis.title, analysis.name)
    question = Text(analysis.question, "italic")
    if isinstance(outcome, Skipped):
        return Group(heading, question, *_skipped(outcome))
    tables = [_table(spec, outcome.tables[spec.name], width) for spec in analysis.tables]
    notes = [_noted("Note: ", note, "dim") for note in outcome.notes]
    return Group(heading, question, *_summary(outcome), *tables, *notes)


def _skipped(skipped: Skipped) -> list[RenderableType]:
    return [_noted("Not answered: ", skipped.reason), _noted("→ ", skipped.remedy)]


def _summary(result: Result) -> list[RenderableType]:
    figures = [
        f"{units.stem(name)} {visible(units.quantity(name, value))}"
        for name, value in result.summary.items()
    ]
    return [Text(" · ".join(figures))] if figures else []


def _table(spec: TableSpec, table: Table, width: int) -> RenderableType:
    caption = Text.assemble("\n", (units.stem(spec.name), "bold"), (f": {spec.meaning}", "dim"))
    if not len(table):
        return Group(caption, Text("none"))
    if spec.detail:
        return Group(
            caption, Text(f"{units.counted(len(table), 'row')}, --html and --json have them")
        )
    head = table.take(np.arange(min(len(table), MOST_ROWS)))
    columns = fitting(spec, head, width)
    grid = _grid(*("" if column.is_text else "right" for column in columns))
    for place, column in zip(grid.columns, columns, strict=True):
        place.width = column.width
    grid.add_row(*(Text(column.heading, "dim") for column in columns))
    for cells in zip(*(column.cut() for column in columns), strict=True):
        grid.add_row(*(Text(cell) for cell in cells))
    return Group(caption, grid, *_rest(len(table) - len(head)))


def _rest(rows: int) -> list[RenderableType]:
    return [Text(f"… and {units.count(rows)} more, --json has all", "dim")] if rows > 0 else []


def _grid(*justified: str) -> Grid:
    grid = Grid(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
    for side in justified:
        grid.add_column(justify="right" if side else "left", no_wrap=False, overflow="fold")
    return grid


def _heading(title: str, name: str = "") -> Text:
    """A title with a line of hyphens under it, which every terminal and pipe can show."""
    said = f"{title}  {name}" if name else title
    return Text.assemble(
        (title, "bold"), (said[len(title) :], "dim"), ("\n" + "-" * len(said), "dim")
    )


def _noted(lead: str, text: str, style: str = "") -> RenderableType:
    return Padding(Text.assemble((lead, f"bold {style}"), visible(text, _SENTENCE)), 0)


def _sentence(text: str) -> Text:
    return Text(visible(text, _SENTENCE))
