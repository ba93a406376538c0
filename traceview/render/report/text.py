"""A report as text for a terminal or a pipe: its tables, and a finding in lines.

No text is taken as markup, so a name with brackets stays as it is. Uninformative columns are left
out: the only device or process of the recording, all zeros, all absent. JSON has every column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import Column, Table, TableSpec
from traceview.render.base.safe_text import linked, visible
from traceview.render.base.text import (
    GAP,
    SENTENCE,
    SEVERITY_STYLES,
    Prose,
    TerminalColumn,
    drawn,
    fitting,
    grid,
    heading,
    joined_within,
    note_block,
    sentence,
    whole_sentences,
    wrapped,
)
from traceview.render.document import MOST_ROWS as JSON_ROWS
from traceview.render.report import document, plan
from traceview.traces import analyses as registered
from traceview.traces.analyses.base import Analysis, Skipped
from traceview.traces.plan import RankedFinding
from traceview.traces.ranking import Outcome
from traceview.traces.reporting import Report

INDENT = "  "
_SEPARATOR, ARROW = " · ", "→ "
ALL = 1_000
"""Lines enough for any sentence."""
WIDEST = 100
"""Longer lines are hard to read."""


@record
class FindingText:
    """A finding in lines of `width` cells.

    With `links`, a source line becomes a link (OSC 8) where its file is on this machine.
    """

    ranked: RankedFinding
    width: int
    links: bool

    @property
    def least_action(self) -> int:
        """Lines of the first sentence of the action; 0 without one."""
        return next((lines for lines in range(1, ALL) if self._action(lines)), 0)

    def lines(self, message: int = ALL, action: int = ALL, *, refers: bool = False) -> list[Text]:
        """A head, so many lines of the message at most, and whole sentences of the action.

        If `refers`, a line says where to read an action of which not even a sentence fits.
        """
        finding, room = self.ranked.finding, self.width - len(INDENT)
        texts = [Text(line) for line in _message(finding.message, room, message)]
        steps = self._action(action)
        if refers and finding.action and not steps:
            steps = [f"see --only {self.ranked.analysis}"]
        if steps:
            texts += [Text.assemble((ARROW, "bold"), steps[0])]
            texts += [Text(f"{' ' * len(ARROW)}{line}") for line in steps[1:]]
        if self.links:
            texts = [linked(text, finding.subject.file, finding.subject.line) for text in texts]
        return [*self._head(), *(Text(INDENT).append_text(text) for text in texts)]

    def _action(self, most: int) -> list[str]:
        room = self.width - len(INDENT) - len(ARROW)
        return whole_sentences(visible(self.ranked.finding.action, SENTENCE), room, most)

    def _head(self) -> list[Text]:
        """Severity, claim and analysis; in several lines where they do not fit in one."""
        finding = self.ranked.finding
        severity = Text(finding.severity, SEVERITY_STYLES[finding.severity])
        end = f"{INDENT}[{self.ranked.analysis}]"
        claimed = document.ranked_claim(self.ranked)
        parts = claimed.parts() if claimed else []
        room = self.width - cell_len(f"{severity.plain}{INDENT}")
        if not parts or cell_len(f"{parts[0]}{end}") <= room:
            saved = joined_within(parts, _SEPARATOR, room - cell_len(end))
            return [severity.append(f"{INDENT}{saved}" if saved else "", "bold").append(end, "dim")]
        first, *rest = wrapped(_SEPARATOR.join(parts), room, ALL)
        lines = [
            severity.append(f"{INDENT}{first}", "bold"),
            *(Text(f"{INDENT}{line}", "bold") for line in rest),
        ]
        if cell_len(f"{lines[-1].plain}{end}") > self.width:
            lines.append(Text())
        lines[-1].append(end, "dim")
        return lines


def _message(text: str, width: int, most: int) -> list[str]:
    """The message in at most `most` lines; without quoted source if a place fits only so."""
    brief = _QUOTED.sub("", text)
    with_quotes, without = (wrapped(visible(each, SENTENCE), width, most) for each in (text, brief))
    kept, whole = (" ".join(lines) for lines in (with_quotes, without))
    gains = whole.count(". ") > kept.count(". ") and not _QUOTED.search(kept)
    return without if gains or (kept.endswith("…") and not whole.endswith("…")) else with_quotes


_QUOTED = re.compile(r" \(`[^`]*`\)")
_INDENT = 4
_FULL_NAME, _MOST_LINES = 4_000, 60


@record
class TextOptions:
    """The most rows of a table, and whether kernel names are written in full."""

    rows: int = 10
    full_names: bool = False


def table_lines(
    spec: TableSpec, table: Table, width: int, single: Set[str], options: TextOptions
) -> Iterator[Text]:
    """The first rows of a table as lines of at most `width` cells, below a line of headings."""
    head = table.take(np.arange(min(len(table), options.rows)))
    telling = replace(spec, columns=tuple(document.telling_columns(spec, table, single)))
    inline, below = _split(telling, head, width, options)
    columns = fitting(inline, head, width, prose_wraps=False)
    yield _line([column.heading for column in columns], columns, "dim")
    for row, cells in enumerate(zip(*(column.cut() for column in columns), strict=True)):
        yield _line(cells, columns)
        for column in below:
            value = head.cells(column.name)[row]
            if value is not None and value != "":
                for line in wrapped(visible(str(value), _FULL_NAME), width - _INDENT, _MOST_LINES):
                    yield Text(f"{'':{_INDENT}}{line}", "dim")


def _split(
    spec: TableSpec, head: Table, width: int, options: TextOptions
) -> tuple[TableSpec, list[Column]]:
    """The columns to show side by side, and those whose cells get their own lines."""
    brief = [column for column in spec.columns if column.name in spec.brief_names]
    natural = sum(_natural_width(column, head) + GAP for column in brief) - GAP
    below = [column for column in brief if column.prose and natural > width]
    beside = [column for column in spec.columns if not column.prose or natural <= width]
    if options.full_names:
        below += [column for column in spec.columns if column.name == "name"]
        beside = [column for column in beside if column.name != "name" or len(beside) == 1]
    if not beside:
        beside, below = below[:1], below[1:]
    return replace(spec, columns=tuple(beside)), below


def _natural_width(column: Column, head: Table) -> int:
    texts = (visible(units.quantity(column.name, value)) for value in head.cells(column.name))
    return max(map(cell_len, (units.label(column.name), *texts)))


def _line(
    cells: list[str] | tuple[str, ...], columns: list[TerminalColumn], style: str = ""
) -> Text:
    parts = []
    for cell, column in zip(cells, columns, strict=True):
        pad = " " * max(column.width - cell_len(cell), 0)
        parts.append(f"{cell}{pad}" if column.is_text else f"{pad}{cell}")
    return Text((" " * GAP).join(parts).rstrip(), style)


MOST_FINDINGS = 10


def render_text(
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    links: bool = False,
    options: TextOptions = TextOptions(),  # noqa: B008 - frozen
) -> str:
    """The whole report in lines of at most `width` cells; with ANSI styles if `color`.

    With `links`, a source line of a finding is a link (OSC 8) where its file is on this machine.
    """
    page = _Page(width, document.single_ids(report.trace), options)
    sections = [_answer(a, report.outcomes[a.name], page) for a in report.analyses]
    verdict = report.verdict
    texts = [text for text in (verdict.text, verdict.shares_text) if text] if verdict else []
    told = [Prose(visible(text, SENTENCE)) for text in texts]
    answers = [_findings(report, page, links), *sections]
    title, facts, warnings = _header(report)
    # Who asks one question wants its answer first.
    if len(report.analyses) < len(registered.ALL):
        parts = [Group(title, *warnings), *answers, facts]
    else:
        parts = [Group(title, facts, *warnings), *answers]
    return drawn([*told, *parts], width, color)


@record
class _Page:
    """Settings that all tables of a report share."""

    width: int
    single: frozenset[str]
    options: TextOptions


def _header(report: Report) -> tuple[Text, RenderableType, list[RenderableType]]:
    """Name of the recording, what is known of it, and warnings."""
    trace = report.trace
    rows = grid("", "")
    for name, value in document.header_facts(trace):
        rows.add_row(Text(name, "dim"), sentence(value))
    title = Text(visible(PurePath(trace.path).name), "bold")
    told = [note_block("Warning: ", text, "yellow") for text in document.warnings(report)]
    return title, rows, told


def _findings(report: Report, page: _Page, links: bool) -> RenderableType:
    head = heading("What to do first")
    if not report.findings:
        return Group(head, Text(document.nothing_found(report)))
    planned = plan.plan_text(report)
    steps = [note_block("Plan: ", planned)] if planned else []
    shown = report.findings[:MOST_FINDINGS]
    texts = (FindingText(each, min(page.width, WIDEST), links) for each in shown)
    lines = (line for text in texts for line in text.lines())
    return Group(head, *steps, *lines, *_rest(len(report.findings) - MOST_FINDINGS))


def _answer(analysis: Analysis, outcome: Outcome, page: _Page) -> RenderableType:
    head = heading(analysis.title, analysis.name)
    question = Text(analysis.question, "italic")
    if isinstance(outcome, Skipped):
        reason = note_block("Not answered: ", outcome.reason)
        return Group(head, question, reason, note_block("→ ", outcome.remedy))
    shown = outcome.shown(analysis.tables)
    tables = [table_block(*each, page.width, page.single, page.options) for each in shown]
    notes = [note_block("Note: ", note, "dim") for note in outcome.notes]
    figures = [
        f"{units.stem(name)} {visible(units.quantity(name, value))}"
        for name, value in outcome.summary.items()
    ]
    return Group(head, question, *[Prose(" · ".join(figures))] if figures else [], *tables, *notes)


def table_block(
    spec: TableSpec, table: Table, width: int, single: Set[str], options: TextOptions
) -> RenderableType:
    """A table below its name and meaning; for a detail table, only its number of rows.

    `single` names columns of ids that have one value in the whole recording.
    """
    caption = Text.assemble("\n", (units.stem(spec.name), "bold"), (f": {spec.meaning}", "dim"))
    if not len(table):
        return Group(caption, Text("none"))
    if spec.detail:
        return Group(caption, Text(_elsewhere(len(table))))
    rows = table_lines(spec, table, width, single, options)
    return Group(caption, *rows, *_rest(len(table) - options.rows, len(table)))


def _elsewhere(rows: int) -> str:
    counted = units.counted(rows, "row")
    if rows > JSON_ROWS:
        return f"{counted}: {units.count(JSON_ROWS)} in --json, all with --json --all-rows"
    return f"{counted}, shown by --html and --json"


def _rest(rows: int, of: int = 0) -> list[RenderableType]:
    whole = "--json --all-rows" if of > JSON_ROWS else "--json"
    return [Text(f"… and {units.count(rows)} more ({whole} has all)", "dim")] if rows > 0 else []
