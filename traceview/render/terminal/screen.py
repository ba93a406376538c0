"""A report on one screen: what ran, the verdict, the scoreboard, what to do first.

Every line is made here, because the number of lines is what is promised: at most MOST_LINES. The
findings get what is left of them, first all of them briefly, then the worst ones in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.analyses.base import Skipped
from traceview.ranking import RankedFinding
from traceview.render.base.links import linked
from traceview.render.base.paragraphs import cut, joined_within, wrapped
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text_blocks import SENTENCE, SEVERITY_STYLES, drawn
from traceview.render.report.header import header_facts, nothing_found
from traceview.render.report.saving import PARTIAL, qualifier, saved_per_step, saving, speedup
from traceview.render.report.scoreboard import ScoreTile, tiles
from traceview.report import Report

MOST_LINES = 40
_INDENT = "  "
_MOST_INFO = 3
_FORMS = ((1, 0), (1, 1), (2, 1), (2, 2), (4, 3))
"""Lines of message and action, from brief to full."""
_WIDEST_HALF = 60
_NARROWEST, _TWO_COLUMNS, _VERDICT_LINES = 40, 72, 3
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

    With `links`, a source line becomes a link (OSC 8) where its file is on this machine.
    """
    width = max(width, _NARROWEST)
    above = [*_opening(report, width), Text("")]
    below = [Text(""), *_closing(report, width)]
    left = MOST_LINES - len(above) - len(below)
    lines = [*above, *_findings(report, width, left, links), *below]
    return drawn([Text("\n").join(lines)], width, color)


def _opening(report: Report, width: int) -> Iterator[Text]:
    yield Text(_what_ran(report, width), "dim")
    warnings = [visible(text, SENTENCE) for text in report.trace.warnings]
    for text in warnings[:2]:
        yield Text.assemble(("Warning: ", "bold yellow"), cut(text, width - 9))
    if report.verdict:
        yield Text("")
        lines = wrapped(visible(report.verdict.text, SENTENCE), width, _VERDICT_LINES)
        yield from (Text(line, "bold") for line in lines)
    if report.scoreboard:
        yield Text("")
        yield from _scoreboard(tiles(report.scoreboard), width)


def _what_ran(report: Report, width: int) -> str:
    """File, selection, GPU, duration, process: as many of them as fit in one line."""
    facts = dict(header_facts(report.trace))
    name = shortened(visible(PurePath(report.trace.path).name), width)
    chosen = ("only ranges", "without ranges", "GPU", "duration", "contains", "process")
    parts = [facts[key] for key in chosen if key in facts]
    for key, before in (("only ranges", "only "), ("without ranges", "without ")):
        parts = [f"{before}{part}" if part == facts.get(key) else part for part in parts]
    shown = [visible(part.replace("compute capability", "cc")) for part in parts]
    return joined_within([name, *shown, facts.get("recorded by", "")], " · ", width)


def _scoreboard(each: Sequence[ScoreTile], width: int) -> Iterator[Text]:
    """Two figures per line, in a narrow terminal one; the detail of one only where it fits."""
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
    text.append(f"{tile.value:<9}", _STYLES.get(tile.value, "bold"))
    fits = cell_len(text.plain) + 1 + cell_len(tile.detail) <= width
    return text.append(f" {tile.detail}", "dim") if tile.detail and fits else text


@dataclass(frozen=True)
class _Entry:
    """One finding, which can be drawn in each of _FORMS."""

    ranked: RankedFinding
    whole: str
    width: int
    links: bool

    def lines(self, form: int) -> list[Text]:
        finding, (message, action) = self.ranked.finding, _FORMS[form]
        room = self.width - len(_INDENT)
        texts = [Text(line) for line in wrapped(visible(finding.message, SENTENCE), room, message)]
        if finding.action and action:
            steps = wrapped(visible(finding.action, SENTENCE), room - 2, action)
            texts += [Text.assemble(("→ ", "bold"), steps[0])]
            texts += [Text(f"  {line}") for line in steps[1:]]
        if self.links:
            texts = [linked(text, finding.subject.file, finding.subject.line) for text in texts]
        return [self._head(), *(Text(_INDENT).append_text(text) for text in texts)]

    def _head(self) -> Text:
        finding = self.ranked.finding
        head = Text.assemble((finding.severity, SEVERITY_STYLES[finding.severity]))
        end = f"  [{self.ranked.analysis}]"
        said = joined_within(_amounts(self.ranked, self.whole), " · ", self.width - 8 - len(end))
        if said:
            head.append(f"{_INDENT}{said}", "bold")
        return head.append(end, "dim")


def _amounts(ranked: RankedFinding, whole: str) -> list[str]:
    """What acting on it saves, its share, and how much faster that makes a step."""
    stake, share = saving(ranked.finding, whole, ranked.forecast)
    forecast = ranked.forecast
    if not stake:
        return []
    lead = qualifier(forecast).replace("at most", "up to")
    saved = f"save {lead} {saved_per_step(forecast) or stake}"
    of = share.removesuffix(f" of {whole}") if saved_per_step(forecast) else share
    rest = PARTIAL if forecast and forecast.is_partial else ""
    return [f"{saved} ({of})" if of else saved, speedup(forecast), rest]


def _findings(report: Report, width: int, left: int, links: bool) -> list[Text]:
    if not report.findings:
        return [Text(line) for line in wrapped(nothing_found(report), width, left)]
    entries = [_Entry(each, report.whole, width, links) for each in report.findings]
    urgent = [each for each in entries if each.ranked.finding.severity != "info"]
    title = "What to do first" if urgent else "Notes"
    told = urgent or entries[:_MOST_INFO]
    drawn_entries = _as_full_as_fit(told, left - 1)
    notes = entries[len(told) :]
    room = left - 1 - sum(map(len, drawn_entries))
    shown = notes[: max(min(_MOST_INFO, room - 1, len(notes)), 0)]
    rest = len(notes) - len(shown)
    lines = [line for each in drawn_entries for line in each]
    lines += [_note(each) for each in shown]
    if rest and room > len(shown):
        lines.append(Text(f"… and {units.counted(rest, 'more note')} in --all", "dim"))
    return [Text(title, "bold underline"), *lines]


def _as_full_as_fit(entries: Sequence[_Entry], room: int) -> list[list[Text]]:
    """Each entry in the fullest form for which there is room, the worst ones first."""
    result = [each.lines(0) for each in entries]
    for form in range(1, len(_FORMS)):
        for at, entry in enumerate(entries):
            fuller = entry.lines(form)
            if sum(map(len, result)) - len(result[at]) + len(fuller) <= room:
                result[at] = fuller
    return result


def _note(entry: _Entry) -> Text:
    ranked = entry.ranked
    end = f"  [{ranked.analysis}]"
    room = entry.width - len("info") - len(_INDENT) - len(end)
    said = wrapped(visible(ranked.finding.message, SENTENCE), room, 1)
    return Text.assemble(("info", "dim"), f"{_INDENT}{said[0]}", (end, "dim"))


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
