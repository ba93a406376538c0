"""Findings in a number of lines: first all of them briefly, then the worst ones in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.ranking import RankedFinding
from traceview.render.base.links import linked
from traceview.render.base.paragraphs import cut, joined_within, wrapped
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import SENTENCE, SEVERITY_STYLES
from traceview.render.report.saving import PARTIAL, qualifier, saved_per_step, saving, speedup

_INDENT = "  "
_MOST_INFO = 3
_FORMS = ((1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (4, 3))
"""Lines of message and action, from brief to full: the line to change is often in the third."""


def finding_lines(
    findings: Sequence[RankedFinding], whole: str, width: int, left: int, links: bool = False
) -> list[Text]:
    """A heading and the findings in at most `left` lines of `width` cells; none without findings.

    `whole` is what shares are of, such as `a step`. With `links`, a source line becomes a link.
    """
    if not findings:
        return []
    entries = [_Entry(each, whole, width, links) for each in findings]
    urgent = [each for each in entries if each.ranked.finding.severity != "info"]
    title = "What to do first" if urgent else "Notes"
    told = urgent or entries[:_MOST_INFO]
    drawn_entries = _as_full_as_fit(told, left - 1)
    lines = [line for each in drawn_entries for line in each]
    lines += _notes(entries[len(told) :], left - 1 - len(lines))
    return [Text(title, "bold underline"), *lines]


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
    """The saving, its share, and the speed-up of a step."""
    stake, share = saving(ranked.finding, whole, ranked.forecast)
    forecast = ranked.forecast
    if not stake:
        return []
    lead = qualifier(forecast).replace("at most", "up to")
    saved = f"save {lead} {saved_per_step(forecast) or stake}"
    of = share.removesuffix(f" of {whole}") if saved_per_step(forecast) else share
    rest = PARTIAL if forecast and forecast.is_partial else ""
    return [f"{saved} ({of})" if of else saved, speedup(forecast), rest]


def _as_full_as_fit(entries: Sequence[_Entry], room: int) -> list[list[Text]]:
    """Each entry in the fullest form for which there is room, the worst ones first."""
    result = [each.lines(0) for each in entries]
    for form in range(1, len(_FORMS)):
        for at, entry in enumerate(entries):
            fuller = entry.lines(form)
            if sum(map(len, result)) - len(result[at]) + len(fuller) <= room:
                result[at] = fuller
    return result


def _notes(notes: Sequence[_Entry], room: int) -> list[Text]:
    """The first notes in at most two lines each, and how many more there are.

    Whole sentences of a few rather than the beginnings of all; the first is cut where it must be.
    """
    lines: list[Text] = []
    shown = 0
    for each in notes[:_MOST_INFO]:
        rest = len(notes) > shown + 1
        note = _note(each, 2)
        if not shown and len(note) + rest > room:
            note = _note(each, 1)
        if len(lines) + len(note) + rest > room:
            break
        lines, shown = [*lines, *note], shown + 1
    if shown < len(notes) and len(lines) < room:
        more = units.counted(len(notes) - shown, "more note" if shown else "note")
        lines.append(Text(f"{'… and ' if shown else ''}{more} in --all", "dim"))
    return lines


def _note(entry: _Entry, most: int) -> list[Text]:
    ranked = entry.ranked
    end, start = f"  [{ranked.analysis}]", f"info{_INDENT}"
    message = visible(ranked.finding.message, SENTENCE)
    room = entry.width - len(start)
    lines = wrapped(message, room, most)
    if cell_len(lines[-1]) > room - len(end):
        narrower = wrapped(message, room - len(end), most)
        is_cut = narrower[-1].endswith("…")
        lines = [*lines[:-1], cut(lines[-1], room - len(end))] if is_cut else narrower
    texts = [Text(f"{' ' * len(start)}{line}") for line in lines]
    texts[0] = Text.assemble(("info", "dim"), f"{_INDENT}{lines[0]}")
    return [*texts[:-1], texts[-1].append(end, "dim")]
