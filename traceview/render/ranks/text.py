"""The answer for a job in a terminal: one screen, however many ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from traceview import units
from traceview.ranks.job import JobReport
from traceview.ranks.tables import GROUPS, chosen
from traceview.render.base.paragraphs import cut, joined_within, wrapped
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text_blocks import SENTENCE, drawn, note_block
from traceview.render.ranks.figures import job_tiles, ranked_findings
from traceview.render.ranks.header import (
    job_facts,
    job_title,
    nothing_found,
    single_values,
    warnings,
)
from traceview.render.ranks.heat_text import heat_lines
from traceview.render.ranks.rank_rows import rank_rows
from traceview.render.report.finding_text import ALL
from traceview.render.report.table_text import TextOptions, table_lines
from traceview.render.report.text import table_block
from traceview.render.terminal.findings import finding_lines
from traceview.render.terminal.screen import scoreboard_lines

MOST_LINES = 40
MOST_GROUPS = 4
_LEAST_FINDINGS = 8
"""Least lines for the findings; the table of ranks gives up rows for them."""
_NARROWEST, _VERDICT_LINES, _MOST_WARNINGS, _MOST_NOTES = 40, 3, 3, 2
_MORE = ("More: --all every table", "--html the page", "--rank N the report of one rank")
_ALL, _MAP_LINES = TextOptions(rows=20), 40
"""Rows of a table, and lines of the heat map, where all tables are shown."""


def render_job(
    job: JobReport,
    *,
    width: int = 80,
    color: bool = False,
    all_tables: bool = False,
    only: Sequence[str] = (),
) -> str:
    """The job in at most MOST_LINES lines of at most `width` cells; styled if `color`.

    With `all_tables`, every table follows, or those that `only` names, and the number of lines is
    not limited.
    """
    width = max(width, _NARROWEST)
    above = [*_opening(job, width), Text("")]
    below = [Text(""), *_closing(job, width)] if not all_tables else []
    ranks, groups = list(_ranks(job, width)), list(_groups(job, width))
    left = MOST_LINES - sum(map(len, (above, below, ranks, groups))) - 1
    most = ALL if all_tables else max(left, _LEAST_FINDINGS)
    findings = finding_lines(ranked_findings(job), width, most)
    findings = findings or wrapped_lines(nothing_found(job), width)
    room = _MAP_LINES if all_tables else left - len(findings)
    lines = [*above, *findings, Text(""), *ranks, *_map(job, width, room), *groups, *below]
    return drawn([Text("\n").join(lines), *_tables(job, width, all_tables, only)], width, color)


def wrapped_lines(text: str, width: int, most: int = _VERDICT_LINES, style: str = "") -> list[Text]:
    """A sentence in at most `most` lines."""
    return [Text(line, style) for line in wrapped(visible(text, SENTENCE), width, most)]


def _opening(job: JobReport, width: int) -> Iterator[Text]:
    facts = [visible(text) for text in _facts(job)]
    name = shortened(visible(job_title(job)), width)
    yield Text(joined_within([name, *facts], " · ", width), "dim")
    for text in warnings(job)[:_MOST_WARNINGS]:
        yield Text.assemble(("Warning: ", "bold yellow"), cut(visible(text, SENTENCE), width - 9))
    yield Text("")
    yield from wrapped_lines(job.verdict.text, width, style="bold")
    yield Text("")
    yield from scoreboard_lines(job_tiles(job), width)


def _facts(job: JobReport) -> Iterator[str]:
    for name, value in job_facts(job):
        if name == "clocks":
            yield f"{name} {value}"
        elif name != "hosts":
            noun = name.removesuffix("s") if value == "1" else name
            yield f"{value} {noun}" if name in ("ranks", "steps") else value


def _ranks(job: JobReport, width: int) -> Iterator[Text]:
    spec, table = rank_rows(job)
    per = ", mean per step" if job.verdict.step_median_ns else ""
    yield Text(f"Ranks{per}", "bold underline")
    yield from table_lines(spec, table, width, single_values(job), TextOptions(rows=len(table)))


def _map(job: JobReport, width: int, room: int) -> Iterator[Text]:
    """An empty line and the heat map in at most `room` lines; nothing if it does not fit."""
    lines = heat_lines(job, width, room - 1)
    if lines:
        yield from (Text(""), *lines)


def _groups(job: JobReport, width: int) -> Iterator[Text]:
    table = job.result.tables["groups"]
    if not len(table):
        return
    yield Text("")
    yield Text("Groups", "bold underline")
    spec = replace(GROUPS, columns=tuple(c for c in GROUPS.columns if c.name in GROUPS.brief))
    yield from table_lines(spec, table, width, frozenset(), TextOptions(rows=MOST_GROUPS))
    if len(table) > MOST_GROUPS:
        yield Text(f"… and {units.count(len(table) - MOST_GROUPS)} more", "dim")


def _closing(job: JobReport, width: int) -> Iterator[Text]:
    for note in job.result.notes[:_MOST_NOTES]:
        yield from wrapped_lines(f"Note: {note}", width, 2, "dim")
    yield Text(joined_within(_MORE, " · ", width), "dim")


def _tables(
    job: JobReport, width: int, shows: bool, only: Sequence[str]
) -> Iterator[RenderableType]:
    if not shows:
        return
    single = single_values(job)
    for spec, table in job.result.shown(chosen(only)):
        yield table_block(spec, table, width, single, _ALL)
    for note in job.result.notes:
        yield note_block("Note: ", note, "dim")
