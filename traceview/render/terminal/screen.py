"""A report on one screen: what ran, the verdict, the scoreboard, what to do first.

All lines are laid out in this folder, to keep their number to MOST_LINES. The findings get the
lines that the rest leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.analyses.base import Skipped
from traceview.findings import LEAST_LOW_NS
from traceview.ranking import RankedFinding
from traceview.render.base.paragraphs import cut, joined_within, wrapped
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text_blocks import SENTENCE, drawn
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.scoreboard import ScoreTile, tiles
from traceview.render.terminal.findings import finding_lines
from traceview.report import Report

MOST_LINES = 40
_WIDEST_HALF = 60
_NARROWEST, _TWO_COLUMNS, _VERDICT_LINES = 40, 72, 3
_SELECTED = {"only ranges": "only", "without ranges": "without"}
_SEPARATOR = " · "
_WARNING, _WARNING_LINES = "Warning: ", 3
_MORE = ("More: --all every table", "--only NAME one", "--explain NAME its meaning", "--html")
_STYLES = {
    "launch-bound": "yellow",
    "data-bound": "yellow",
    "drained": "yellow",
    "mixed": "yellow",
    "GPU-bound": "green",
}


def render_screen(
    report: Report, *, width: int = 80, color: bool = False, links: bool = False
) -> str:
    """The report in at most MOST_LINES lines of at most `width` cells; styled if `color`.

    With `links`, a source line becomes a link (OSC 8) if its file is on this machine.
    """
    width = max(width, _NARROWEST)
    above = [*_opening(report, width), Text("")]
    below = [Text(""), *_closing(report, width)]
    left = MOST_LINES - len(above) - len(below)
    findings = finding_lines(_worth_a_line(report.findings), width, left, links)
    nothing = [Text(line) for line in wrapped(nothing_found(report), width, left)]
    lines = [*above, *(findings or nothing), *below]
    return drawn([Text("\n").join(lines)], width, color)


def _worth_a_line(findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """The findings, without notes about negligible time."""
    return [
        each
        for each in findings
        if each.finding.severity != "info" or not 0 < each.finding.time_at_stake_ns < LEAST_LOW_NS
    ]


def _opening(report: Report, width: int) -> Iterator[Text]:
    yield Text(_what_ran(report, width), "dim")
    warnings = [visible(text, SENTENCE) for text in report.trace.warnings]
    for text in warnings[:2]:
        first, *rest = wrapped(text, width - len(_WARNING), _WARNING_LINES)
        yield Text.assemble((_WARNING, "bold yellow"), first)
        yield from (Text(" " * len(_WARNING) + line) for line in rest)
    if report.verdict:
        yield Text("")
        lines = wrapped(visible(report.verdict.text, SENTENCE), width, _VERDICT_LINES)
        yield from (Text(line, "bold") for line in lines)
    if report.scoreboard:
        yield Text("")
        yield from scoreboard_lines(tiles(report.scoreboard), width)


def _what_ran(report: Report, width: int) -> str:
    """File, selection, GPU, duration, process: as many of them as fit in one line.

    The selection is shortened rather than left out, as all figures depend on it.
    """
    facts = dict(header_facts(report.trace))
    selected = [f"{word} {facts[key]}" for key, word in _SELECTED.items() if key in facts]
    file = visible(PurePath(report.trace.path).name)
    name = shortened(file, width // (1 + len(selected)))
    each = (width - cell_len(name)) // max(len(selected), 1) - len(_SEPARATOR)
    parts = [facts[key] for key in ("GPU", "duration", "contains", "process") if key in facts]
    shown = [visible(part.replace("compute capability", "cc")) for part in parts]
    chosen = [cut(visible(part), each) for part in selected]
    parts = [name, *chosen, *shown, facts.get("recorded by", "")]
    return joined_within(parts, _SEPARATOR, width)


def scoreboard_lines(each: Sequence[ScoreTile], width: int) -> Iterator[Text]:
    """Two figures per line, or one in a narrow terminal; with details if they fit."""
    half = min((width - 2) // 2, _WIDEST_HALF)
    if width < _TWO_COLUMNS:
        yield from (_tile(tile, 15, width) for tile in each)
        return
    for left, right in zip(each[::2], each[1::2], strict=True):
        line = _tile(left, 10, half)
        line.append(" " * max(half + 2 - cell_len(line.plain), 1))
        yield line.append_text(_tile(right, 15, half))


def _tile(tile: ScoreTile, name: int, width: int) -> Text:
    text = Text.assemble((f"{tile.name:<{name}}", "dim"))
    room, detail = width - cell_len(text.plain) - 2, tile.detail
    value = f"{tile.value:<8}"
    if cell_len(f"{value}{detail}") > room:
        # Better misaligned than missing.
        value = tile.value
    if cell_len(f"{value}{detail}") > room:
        # Never show a share without its whole.
        whole, value = detail.partition(", ")[0], f"{tile.value:<8}"
        fits = detail.startswith("of ") and cell_len(f"{value}{whole}") <= room
        detail = whole if fits else ""
    text.append(value, _STYLES.get(tile.value, "bold"))
    return text.append(f"  {detail}", "dim") if detail else text


def _closing(report: Report, width: int) -> Iterator[Text]:
    skipped = [name for name, each in report.outcomes.items() if isinstance(each, Skipped)]
    if skipped:
        yield Text(_not_answered(skipped, width), "dim")
    yield Text(joined_within(_MORE, " · ", width), "dim")


def _not_answered(names: Sequence[str], width: int) -> str:
    """`Not answered: load-widths, roofline and 7 more (why: --only NAME)`, as many as fit."""
    for count in range(len(names), -1, -1):
        rest = len(names) - count
        listed = ", ".join(names[:count]) or units.counted(rest, "question")
        more = f" and {units.count(rest)} more" if rest and count else ""
        text = f"Not answered: {listed}{more} (why: --only NAME)"
        if cell_len(text) <= width:
            return text
    return cut(f"Not answered: {', '.join(names)}", width)
