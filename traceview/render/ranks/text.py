"""The answer for a job in a terminal: one screen, however many ranks, with a map in letters.

The map is pure ASCII, and its letters suffice without colours. If a terminal is too small for all
ranks or steps, a cell shows the worst of several; the heading states how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers
from traceview.base.vocabulary.causes import CAUSE_NAMES, CAUSES, COPY_WAIT, LAUNCH_LATE
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import SENTENCE, cut, drawn, joined_within, note_block, wrapped
from traceview.render.ranks import document, html
from traceview.render.report.text import ALL, TextOptions, table_block, table_lines
from traceview.render.screen import finding_lines, scoreboard_lines
from traceview.traces.ranks.job import PARTS, HeatMap, JobReport
from traceview.traces.ranks.lateness import GPU_WORK
from traceview.traces.ranks.tables import GROUPS, chosen

LEAST_SHARE, LARGE_SHARE = 0.05, 0.5
"""Fractions of a step: a smaller part has no letter, a larger one a capital letter."""
_ABSENT, _QUIET, _WAIT = " ", ".", "w"
LOADING = "data-loading"
_LETTERS = {
    "wait": (_WAIT, "waits for others"),
    GPU_WORK: ("g", "more GPU work"),
    **{each.name: each.letter for each in CAUSES},
    LOADING: ("b", "batch not loaded"),
    "communication": ("c", "communication"),
    "copies": CAUSES[COPY_WAIT].letter,
}
"""Letter and meaning by part of a step. GPU work is the excess that other ranks wait for."""
_WIDEST_CELL, _TICK, _LEGEND_LINES, _MOST_SINGLE, _BLOCKS, _LEAST_ROWS = 2, 10, 3, 4, 16, 2


@record
class _Cells:
    """Letters and their severity, −1 where a rank lacks the step; shape (rows, columns)."""

    letters: Array
    weight: Integers

    def worst(self, axis: int) -> _Cells:
        """The worst cell along an axis of arrays with one more dimension."""
        at = np.expand_dims(self.weight.argmax(axis=axis), axis)
        letters, weight = (
            np.take_along_axis(each, at, axis).squeeze(axis) for each in (self.letters, self.weight)
        )
        return _Cells(letters, weight)


def heat_lines(job: JobReport, width: int, room: int) -> list[Text]:
    """The map in at most `room` lines of `width` cells; empty if there is nothing to show.

    There is nothing for a single rank, without steady steps, or if no rank loses much in any step.
    """
    steps = np.flatnonzero(~job.heat.warm_up.any(axis=0))
    if len(job.ranks) < 2 or not len(steps):
        return []
    whole_ns = float(np.median(_known(job.heat.duration_ns[:, steps])))
    cells = _cells(job.heat, steps, whole_ns)
    # The legend of the letters that occur, and of capital letters.
    shown = {letter.lower() for letter in np.unique(cells.letters).tolist()}
    meanings = [f"{letter} {text}" for letter, text in dict(_LETTERS.values()).items()]
    used = [each for each in meanings if each[0] in shown]
    scale = f"{_QUIET} below {round(100 * LEAST_SHARE)} % of a step"
    lines = wrapped(" · ".join([*used, scale, "CAPITAL half or more"]), width, _LEGEND_LINES)
    legend = [Text(line, "dim") for line in lines]
    rows = _rows(job, room - 2 - len(legend))
    if not rows or not (cells.weight > 0).any():
        return []
    label = max(len("step"), *(len(name) for name, _ in rows)) + 2
    short = html.short_names(job.heat.steps)
    names = [short[step] for step in steps.tolist()]
    folded, across = _folded(cells, max(width - label, 1))
    pitch = min(max((width - label) // folded.letters.shape[1], 1), _WIDEST_CELL)
    ticks = _ticks(names[::across], pitch, width - label)
    return [
        _heading(rows, across, width),
        Text(f"{'step':<{label}}{ticks}".rstrip(), "dim"),
        *(_line(name, places, folded, label, pitch) for name, places in rows),
        *legend,
    ]


def _known(times_ns: Integers) -> Integers:
    return times_ns[times_ns != NULL]


def _cells(heat: HeatMap, steps: Integers, whole_ns: float) -> _Cells:
    """The letter of each rank and step. A wait is less severe than another part of equal time."""
    most = np.full((len(heat.duration_ns), len(steps)), -1, np.int64)
    letters = np.full(most.shape, _QUIET)
    # One part at a time: all at once take a gigabyte for 1,024 ranks of 5,000 steps.
    for part, times in _lost(heat):
        longer = times[:, steps] > most
        most[longer], letters[longer] = times[:, steps][longer], _LETTERS[part][0]
    weight = np.where(letters == _WAIT, most - most // 10, most)
    large, quiet = most >= LARGE_SHARE * whole_ns, most < LEAST_SHARE * whole_ns
    letters[large] = np.char.upper(letters[large])
    letters[quiet], weight[quiet] = _QUIET, 0
    absent = heat.duration_ns[:, steps] == NULL
    letters[absent], weight[absent] = _ABSENT, -1
    return _Cells(letters, weight)


def _lost(heat: HeatMap) -> Iterator[tuple[str, Integers]]:
    """All parts except compute, with their times by rank and step."""
    for part, name in enumerate(PARTS[1:], 1):
        times = heat.parts_ns[:, :, part]
        if name != CAUSE_NAMES[LAUNCH_LATE]:
            yield name, times
            continue
        # One letter for the whole part: its two halves could each lose to a smaller part.
        loads = 2 * heat.loading_ns > times
        yield name, np.where(loads, 0, times)
        yield LOADING, np.where(loads, times, 0)
    yield GPU_WORK, heat.more_work_ns


def _folded(cells: _Cells, room: int) -> tuple[_Cells, int]:
    """The map in at most `room` columns, and the number of steps per column."""
    ranks, steps = cells.letters.shape
    across = -(-steps // room)
    spare = -steps % across
    letters = np.pad(cells.letters, ((0, 0), (0, spare)), constant_values=_ABSENT)
    weight = np.pad(cells.weight, ((0, 0), (0, spare)), constant_values=-1)
    shape = (ranks, -1, across)
    return _Cells(letters.reshape(shape), weight.reshape(shape)).worst(2), across


def _rows(job: JobReport, most: int) -> list[tuple[str, Integers]]:
    """Name and rank places of each row: all ranks, or outliers and then blocks of ranks."""
    count = len(job.ranks)
    numbers = [rank.name.rank for rank in job.ranks]
    if count <= most:
        return [(str(number), np.array([place])) for place, number in enumerate(numbers)]
    if most < _LEAST_ROWS:
        return []
    single = document.outliers(job)[: min(_MOST_SINGLE, most // 2)]
    others = np.setdiff1d(np.arange(count), single)
    blocks = np.array_split(others, min(most - len(single), _BLOCKS))
    named = [(str(numbers[place]), np.array([place])) for place in single]
    if len(blocks) == 1 and single:
        return [*named, ("others", others)]
    return named + [(_block_name(numbers, places), places) for places in blocks]


def _block_name(numbers: Sequence[int], places: Integers) -> str:
    first, last = numbers[places[0]], numbers[places[-1]]
    return str(first) if first == last else f"{first}-{last}"


def _heading(rows: Sequence[tuple[str, Integers]], across: int, width: int) -> Text:
    """The title, and the number of ranks and steps of which a cell shows the worst."""
    most = max(len(places) for _, places in rows)
    differ = any(len(places) not in (1, most) for _, places in rows)
    ranks = [f"{'up to ' if differ else ''}{units.counted(most, 'rank')}"] if most > 1 else []
    several = [*ranks, *([units.counted(across, "step")] if across > 1 else [])]
    of = f", worst of {' × '.join(several)}" if several else ""
    title = "Ranks and steps"
    rest = cut(f"largest part besides compute{of}", width - len(title) - 2)
    return Text.assemble((title, "bold underline"), (f"  {rest}", "dim"))


def _ticks(names: Sequence[str], pitch: int, width: int) -> str:
    """Column names above their columns, as many as fit: part of a number is another number."""
    line = ""
    for column in range(0, len(names), max(_TICK // pitch, 1)):
        space = column * pitch - cell_len(line)
        name = visible(names[column], 60)
        if space >= bool(line) and column * pitch + cell_len(name) <= width:
            line += " " * space + name
    return line


def _line(name: str, places: Integers, cells: _Cells, label: int, pitch: int) -> Text:
    row = _Cells(cells.letters[places], cells.weight[places]).worst(0).letters
    text = Text(f"{name:<{label}}")
    for letter in row.tolist():
        text.append(f"{letter:<{pitch}}", _style(letter))
    text.rstrip()
    return text


def _style(letter: str) -> str:
    if letter in (_QUIET, _ABSENT):
        return "dim"
    color = "magenta" if letter.lower() == _WAIT else "yellow"
    return f"bold {color}" if letter.isupper() else color


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
    findings = finding_lines(document.ranked_findings(job), width, most)
    findings = findings or wrapped_lines(document.nothing_found(job), width)
    room = _MAP_LINES if all_tables else left - len(findings)
    lines = [*above, *findings, Text(""), *ranks, *_map(job, width, room), *groups, *below]
    return drawn([Text("\n").join(lines), *_tables(job, width, all_tables, only)], width, color)


def wrapped_lines(text: str, width: int, most: int = _VERDICT_LINES, style: str = "") -> list[Text]:
    """A sentence in at most `most` lines."""
    return [Text(line, style) for line in wrapped(visible(text, SENTENCE), width, most)]


def _opening(job: JobReport, width: int) -> Iterator[Text]:
    facts = [visible(text) for text in _facts(job)]
    name = shortened(visible(document.job_title(job)), width)
    yield Text(joined_within([name, *facts], " · ", width), "dim")
    for text in document.warnings(job)[:_MOST_WARNINGS]:
        yield Text.assemble(("Warning: ", "bold yellow"), cut(visible(text, SENTENCE), width - 9))
    yield Text("")
    yield from wrapped_lines(job.verdict.text, width, style="bold")
    yield Text("")
    yield from scoreboard_lines(document.job_tiles(job), width)


def _facts(job: JobReport) -> Iterator[str]:
    for name, value in document.job_facts(job):
        if name == "clocks":
            yield f"{name} {value}"
        elif name != "hosts":
            noun = name.removesuffix("s") if value == "1" else name
            yield f"{value} {noun}" if name in ("ranks", "steps") else value


def _ranks(job: JobReport, width: int) -> Iterator[Text]:
    spec, table = document.rank_rows(job)
    per = ", mean per step" if job.verdict.step_median_ns else ""
    yield Text(f"Ranks{per}", "bold underline")
    yield from table_lines(
        spec, table, width, document.single_values(job), TextOptions(rows=len(table))
    )


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
    spec = replace(GROUPS, columns=tuple(c for c in GROUPS.columns if c.name in GROUPS.brief_names))
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
    single = document.single_values(job)
    for spec, table in job.result.shown(chosen(only)):
        yield table_block(spec, table, width, single, _ALL)
    for note in job.result.notes:
        yield note_block("Note: ", note, "dim")
