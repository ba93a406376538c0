"""A document as Markdown for an issue or a pull request: figures, findings, tables folded.

Names in a trace are hostile: they may contain markup, and GitHub turns `@name` into a notification
and `#12` into a reference. All of it is escaped so that it shows as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch
from html import escape

import numpy as np

from traceview.base import units
from traceview.render.base.code import code_spans
from traceview.render.base.safe_text import visible
from traceview.render.document import Document, Entries, Grid, Section, Sheet
from traceview.render.report.document import ranked_claim, telling_columns
from traceview.traces.analyses.base import Skipped
from traceview.traces.plan import RankedFinding

MOST_ROWS = 10
_MOST_TEXT, _MOST_CELL, _MOST_COLUMNS = 1_000, 120, 8
_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")
_AT_START = re.compile(r"^([-+=:]|\d+(?=[.)]))")
_LINKED = re.compile(r"@|\\#|(?<=http)s?:|(?<=www)\.|\bGH(?=-\d)", re.IGNORECASE)
_BREAK = "<!-- -->"
"""An invisible separator that keeps GitHub from turning a name into a link."""


def render_markdown(document: Document) -> str:
    """The document, with at most MOST_ROWS rows of each table of an answer."""
    return "\n".join(_lines(document)) + "\n"


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


def _lines(of: Document) -> Iterator[str]:
    named = [f"**{escaped(of.title, _MOST_CELL)}**"] if of.title else []
    facts = " · ".join([*named, *map(escaped, of.facts)])
    yield from (facts if of.facts else f"### {escaped(of.title, _MOST_CELL)}", "")
    if of.headline:
        yield from (f"**{escaped(of.headline)}**", "")
    if of.shares:
        yield from (escaped(of.shares), "")
    if of.tiles:
        yield _tabulated(tile.name for tile in of.tiles)
        yield _tabulated("---" for _ in of.tiles)
        yield _tabulated(
            f"**{escaped(tile.value)}** {escaped(tile.detail)}".strip() for tile in of.tiles
        )
        yield ""
    for lead, text in of.warnings:
        yield from (f"> {escaped(lead)}: {escaped(text)}", "")
    yield from _findings(of)
    for section in of.sections:
        yield from _section(section)
    for note in of.notes:
        yield from (f"> Note: {coded(note)}", "")


def _findings(of: Document) -> Iterator[str]:
    if not of.findings and not of.nothing_found:
        return
    yield from ("### What to do first", "")
    if not of.findings:
        yield from (of.nothing_found, "")
    if of.plan:
        yield from (f"**Plan**: {escaped(of.plan)}", "")
    urgent = [each for each in of.findings if each.finding.severity != "info"]
    notes = of.findings[len(urgent) :]
    for number, each in enumerate(urgent, 1):
        yield from _finding(f"{number}.", each)
    if notes:
        entries = [line for each in notes for line in _finding("-", each)]
        yield from _folded(units.counted(len(notes), "note"), entries)


def _finding(lead: str, ranked: RankedFinding) -> Iterator[str]:
    """A list entry that begins with `lead`, such as `1.`."""
    finding, margin = ranked.finding, " " * (len(lead) + 1)
    claimed = ranked_claim(ranked)
    parts = [f"**{finding.severity}**", *map(escaped, claimed.parts() if claimed else ())]
    yield f"{lead} {' · '.join(parts)} · `{ranked.analysis}`  "
    yield f"{margin}{coded(finding.message)}" + ("  " if finding.action else "")
    if finding.action:
        yield f"{margin}→ {coded(finding.action)}"
    yield ""


def _section(section: Section) -> Iterator[str]:
    lines = [line for part in section.parts for line in _part(part)]
    if section.aside:
        yield from _folded(section.title, lines)
        return
    if section.title:
        yield from (f"### {escaped(section.title)}", "")
    yield from lines


@singledispatch
def _part(part: object) -> Iterator[str]:
    raise TypeError(f"{type(part).__name__} is no part of a section")


@_part.register
def _skipped(part: Skipped) -> Iterator[str]:
    yield f"Not answered: {escaped(part.reason)}  "
    yield from (f"→ {coded(part.remedy)}", "")


@_part.register
def _entries(part: Entries) -> Iterator[str]:
    for label, sentence in part.entries:
        lead = f"**{label}**" if part.figures else f"{escaped(label, _MOST_CELL)}:"
        yield f"- {lead} {coded(sentence)}"
    yield ""


@_part.register
def _grid(part: Grid) -> Iterator[str]:
    names, numbers = len(part.names), len(part.numbers)
    yield _tabulated((*part.names, *part.numbers, *part.sentences))
    lines = [*["---"] * names, *["---:"] * numbers, *["---"] * len(part.sentences)]
    yield _tabulated(lines)
    for row in part.rows:
        first, *others = (escaped(cell, _MOST_CELL) for cell in row.cells[:names])
        lead = f"**{first}**" if row.strong else first
        sentences = map(escaped, row.cells[names + numbers :])
        yield _tabulated((lead, *others, *row.cells[names : names + numbers], *sentences))
    yield ""


@_part.register
def _sheet(part: Sheet) -> Iterator[str]:
    """The first rows of a table."""
    columns = {each.name: each for each in telling_columns(part.spec, part.table, part.single)}
    names = [name for name in part.spec.brief_names if name in columns][:_MOST_COLUMNS]
    head = part.table.take(np.arange(min(len(part.table), MOST_ROWS)))
    if part.titled:
        yield from (f"**{units.stem(part.spec.name)}**: {escaped(part.spec.meaning)}", "")
    yield _tabulated(units.label(name) for name in names)
    yield _tabulated("---" if columns[name].dtype == "text" else "---:" for name in names)
    for row in zip(*(head.cells(name) for name in names), strict=True):
        cells = (units.quantity(name, cell) for name, cell in zip(names, row, strict=True))
        yield _tabulated(escaped(str(cell), _MOST_CELL) for cell in cells)
    more = len(part.table) - len(head)
    yield from ("", f"… and {units.count(more)} more", "") if more else ("",)


def _tabulated(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines that GitHub folds below a title, until it is clicked."""
    yield from (f"<details><summary>{escape(title)}</summary>", "")
    yield from lines
    yield from ("</details>", "")
