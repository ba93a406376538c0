"""Findings in a limited number of lines: all of them briefly, the worst ones in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.ranking import RankedFinding
from traceview.render.base.paragraphs import whole_sentences, wrapped
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import SENTENCE
from traceview.render.report.finding_text import INDENT, WIDEST, FindingText

_MOST_INFO, _NOTE_LINES, _LEAST_NOTE = 3, (2, 4), 40
_FORMS = ((1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (4, 3), (5, 4))
"""Lines of message and action, from brief to full: the line to change is often in the third. A
remedy that does not fit is left out, as its beginning alone could mislead."""
_HIGH_MESSAGE = 4
"""Lines of a `high` finding's message that come before any action, and its action before the rest
of all others."""
_MEDIUM_FORMS = _FORMS[1:5]
"""Forms of `medium` findings that are tried before any `low` one gets more than its first line."""


def finding_lines(
    findings: Sequence[RankedFinding], width: int, left: int, links: bool = False
) -> list[Text]:
    """A heading and the findings in at most `left` lines of `width` cells; empty without findings.

    With `links`, a source line becomes a link.
    """
    if not findings:
        return []
    entries = [FindingText(each, min(width, WIDEST), links) for each in findings]
    urgent = [each for each in entries if each.ranked.finding.severity != "info"]
    title = "What to do first" if urgent else "Notes"
    shown = urgent or entries[:_MOST_INFO]
    lines = [line for each in _as_full_as_fit(shown, left - 1) for line in each]
    lines += _notes(entries[len(shown) :], left - 1 - len(lines))
    return [Text(title, "bold underline"), *lines]


def _as_full_as_fit(entries: Sequence[FindingText], room: int) -> list[list[Text]]:
    """Each entry in the fullest form that fits, the worst ones first.

    `high` findings get their actions before others get details, `medium` ones before `low` ones do.
    A `high` one without room for its action has a reference to it.
    """
    result = [each.lines(*_FORMS[0]) for each in entries]
    high, medium = (
        [at for at, each in enumerate(entries) if each.ranked.finding.severity == severity]
        for severity in ("high", "medium")
    )
    rounds = [(form, at) for form in _MEDIUM_FORMS for at in medium]
    rounds += [(form, at) for form in _FORMS[1:] for at in range(len(entries))]
    for (message, action), at in [*_high_first(entries, high), *rounds]:
        fuller = entries[at].lines(message, action, refers=at in high)
        more = len(fuller) - len(result[at])
        if 0 <= more <= room - sum(map(len, result)):
            result[at] = fuller
    return result


def _high_first(
    entries: Sequence[FindingText], high: Sequence[int]
) -> Iterator[tuple[tuple[int, int], int]]:
    """The forms of the `high` findings up to the shortest one with the action."""
    yield from (((message, 0), at) for message in range(1, _HIGH_MESSAGE + 1) for at in high)
    yield from (((_HIGH_MESSAGE, entries[at].least_action), at) for at in high)


def _notes(notes: Sequence[FindingText], room: int) -> list[Text]:
    """The first notes in full, and the number of further ones."""
    lines: list[Text] = []
    shown = 0
    for each in notes[:_MOST_INFO]:
        note = _note(each)
        if len(lines) + len(note) + (len(notes) > shown + 1) > room:
            break
        lines, shown = [*lines, *note], shown + 1
    if shown < len(notes) and len(lines) < room:
        more = units.counted(len(notes) - shown, "more note" if shown else "note")
        lines.append(Text(f"{'… and ' if shown else ''}{more} in --all", "dim"))
    return lines


def _note(entry: FindingText) -> list[Text]:
    end, start = f"  [{entry.ranked.analysis}]", f"info{INDENT}"
    room = entry.width - len(start)
    lines = _note_lines(visible(entry.ranked.finding.message, SENTENCE), room)
    if cell_len(lines[-1]) > room - len(end):
        narrower = max(room - len(end), _LEAST_NOTE)
        lines = _note_lines(visible(entry.ranked.finding.message, SENTENCE), min(narrower, room))
        lines += [""] * (cell_len(lines[-1]) > room - len(end))
    texts = [Text(f"{' ' * len(start)}{line}") for line in lines]
    texts[0] = Text.assemble(("info", "dim"), f"{INDENT}{lines[0]}")
    return [*texts[:-1], texts[-1].append(end, "dim")]


def _note_lines(message: str, width: int) -> list[str]:
    """The sentences that fit in a few lines; a long first one may take more."""
    most, longest = _NOTE_LINES
    return whole_sentences(message, width, most) or wrapped(message, width, longest)
