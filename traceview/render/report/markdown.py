"""A report as Markdown for an issue or a pull request: verdict, figures, findings, tables folded.

Names in a trace are hostile: they may contain markup, and GitHub turns `@name` into a notification
and `#12` into a reference. All of it is escaped so that it shows as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import numpy as np

from traceview import units
from traceview.analyses.base import Result, TableSpec
from traceview.ranking import RankedFinding
from traceview.render.base.code_spans import code_spans
from traceview.render.base.safe_text import visible
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.saving import claim
from traceview.render.report.scoreboard import tiles
from traceview.render.report.table_text import single_ids, telling_columns
from traceview.report import Report
from traceview.tables import Table

MOST_ROWS = 10
_MOST_TEXT, _MOST_CELL, _MOST_COLUMNS = 1_000, 120, 8
_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")
_AT_START = re.compile(r"^([-+=:]|\d+(?=[.)]))")
_LINKED = re.compile(r"@|\\#|(?<=http)s?:|(?<=www)\.|\bGH(?=-\d)", re.IGNORECASE)
_BREAK = "<!-- -->"
"""An invisible separator that keeps GitHub from turning a name into a link."""


def render_markdown(report: Report) -> str:
    """The report, with at most MOST_ROWS rows of each table."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str, most: int = _MOST_TEXT) -> str:
    """The text on one line, escaped so that Markdown shows it literally."""
    return _AT_START.sub(_backslashed, _unmarked(visible(text, most)))


def _unmarked(plain: str) -> str:
    entities = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(rf"\g<0>{_BREAK}", _MARKUP.sub(r"\\\1", entities))


def coded(text: str) -> str:
    """The sentence on one line, escaped, with its code in code spans."""
    parts = code_spans(visible(text, _MOST_TEXT))
    line = "".join(_unmarked(part) if kind == "prose" else _fenced(part) for part, kind in parts)
    return _AT_START.sub(_backslashed, line)


def _fenced(code: str) -> str:
    """A code span: its fence is longer than any run of backticks in it."""
    runs = [len(run) for run in re.findall("`+", code)]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {code} {fence}" if runs else f"{fence}{code}{fence}"


def _backslashed(start: re.Match[str]) -> str:
    """Escape the start of a list or heading: `1.` becomes `1\\.`, `-` becomes `\\-`."""
    return f"{start[0]}\\" if start[0].isdigit() else f"\\{start[0]}"


def _lines(report: Report) -> Iterator[str]:
    facts = dict(header_facts(report.trace))
    name = escaped(report.trace.path.rpartition("/")[2], _MOST_CELL)
    chosen = ("only ranges", "without ranges", "GPU", "duration", "contains", "recorded by")
    yield f"**{name}** · " + " · ".join(escaped(facts[key]) for key in chosen if key in facts)
    yield ""
    if report.verdict:
        yield from (f"**{escaped(report.verdict.text)}**", "")
    if report.scoreboard:
        each = tiles(report.scoreboard)
        yield tabulated(tile.name for tile in each)
        yield tabulated("---" for _ in each)
        yield tabulated(
            f"**{escaped(tile.value)}** {escaped(tile.detail)}".strip() for tile in each
        )
        yield ""
    for warning in report.trace.warnings:
        yield from (f"> Warning: {escaped(warning)}", "")
    yield from _findings(report)
    yield from _tables(report)


def _findings(report: Report) -> Iterator[str]:
    yield from ("### What to do first", "")
    urgent = [each for each in report.findings if each.finding.severity != "info"]
    notes = report.findings[len(urgent) :]
    if not report.findings:
        yield from (nothing_found(report), "")
    for number, each in enumerate(urgent, 1):
        yield from finding_entry(f"{number}.", each)
    yield from (folded(units.counted(len(notes), "note"), _notes(notes)) if notes else ())


def _notes(notes: Sequence[RankedFinding]) -> Iterator[str]:
    for each in notes:
        yield from finding_entry("-", each)


def finding_entry(lead: str, ranked: RankedFinding) -> Iterator[str]:
    """A list entry that begins with `lead`, such as `1.`."""
    finding, margin = ranked.finding, " " * (len(lead) + 1)
    claimed = claim(finding, ranked.forecast)
    parts = [f"**{finding.severity}**", *map(escaped, claimed.parts() if claimed else ())]
    yield f"{lead} {' · '.join(parts)} · `{ranked.analysis}`  "
    yield f"{margin}{coded(finding.message)}" + ("  " if finding.action else "")
    if finding.action:
        yield f"{margin}→ {coded(finding.action)}"
    yield ""


def _tables(report: Report) -> Iterator[str]:
    single = single_ids(report.trace)
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if not isinstance(outcome, Result):
            lines = [
                f"Not answered: {escaped(outcome.reason)}  ",
                f"→ {coded(outcome.remedy)}",
                "",
            ]
            yield from folded(analysis.title, lines)
            continue
        parts = [
            line
            for spec, table in outcome.shown(analysis.tables)
            if len(table) and not spec.detail
            for line in table_rows(spec, table, single)
        ]
        if parts:
            yield from folded(f"{analysis.title}: {analysis.question}", parts)


def table_rows(
    spec: TableSpec, table: Table, single: frozenset[str], title: bool = True
) -> Iterator[str]:
    """The first rows of a table, below its name and meaning if `title`."""
    columns = {column.name: column for column in telling_columns(spec, table, single)}
    names = [name for name in spec.brief if name in columns][:_MOST_COLUMNS]
    head = table.take(np.arange(min(len(table), MOST_ROWS)))
    if title:
        yield from (f"**{units.stem(spec.name)}**: {escaped(spec.meaning)}", "")
    yield tabulated(units.label(name) for name in names)
    yield tabulated("---" if columns[name].dtype == "text" else "---:" for name in names)
    for row in zip(*(head.cells(name) for name in names), strict=True):
        cells = (units.quantity(name, cell) for name, cell in zip(names, row, strict=True))
        yield tabulated(escaped(str(cell), _MOST_CELL) for cell in cells)
    more = len(table) - len(head)
    yield from ("", f"… and {units.count(more)} more", "") if more else ("",)


def tabulated(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines that GitHub folds below a title, until it is clicked."""
    yield from (f"<details><summary>{escape(title)}</summary>", "")
    yield from lines
    yield from ("</details>", "")
