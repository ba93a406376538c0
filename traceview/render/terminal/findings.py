"""Findings in a number of lines: first all of them briefly, then the worst ones in full."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.ranking import RankedFinding
from traceview.render.base.paragraphs import cut, wrapped
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import SENTENCE
from traceview.render.report.finding_text import INDENT, WIDEST, FindingText

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
    entries = [FindingText(each, whole, min(width, WIDEST), links) for each in findings]
    urgent = [each for each in entries if each.ranked.finding.severity != "info"]
    title = "What to do first" if urgent else "Notes"
    shown = urgent or entries[:_MOST_INFO]
    drawn_entries = _as_full_as_fit(shown, left - 1)
    lines = [line for each in drawn_entries for line in each]
    lines += _notes(entries[len(shown) :], left - 1 - len(lines))
    return [Text(title, "bold underline"), *lines]


def _as_full_as_fit(entries: Sequence[FindingText], room: int) -> list[list[Text]]:
    """Each entry in the fullest form for which there is room, the worst ones first."""
    result = [each.lines(*_FORMS[0]) for each in entries]
    for form in _FORMS[1:]:
        for at, entry in enumerate(entries):
            fuller = entry.lines(*form)
            if sum(map(len, result)) - len(result[at]) + len(fuller) <= room:
                result[at] = fuller
    return result


def _notes(notes: Sequence[FindingText], room: int) -> list[Text]:
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


def _note(entry: FindingText, most: int) -> list[Text]:
    ranked = entry.ranked
    end, start = f"  [{ranked.analysis}]", f"info{INDENT}"
    message = visible(ranked.finding.message, SENTENCE)
    room = entry.width - len(start)
    lines = wrapped(message, room, most)
    if cell_len(lines[-1]) > room - len(end):
        narrower = wrapped(message, room - len(end), most)
        is_cut = narrower[-1].endswith("…")
        lines = [*lines[:-1], cut(lines[-1], room - len(end))] if is_cut else narrower
    texts = [Text(f"{' ' * len(start)}{line}") for line in lines]
    texts[0] = Text.assemble(("info", "dim"), f"{INDENT}{lines[0]}")
    return [*texts[:-1], texts[-1].append(end, "dim")]
