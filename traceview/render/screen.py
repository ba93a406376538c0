"""A report on one screen: what ran, the verdict, the scoreboard, what to do first.

All lines are laid out here, to keep their number to MOST_LINES. The findings get the lines that the
rest leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile, zip_longest
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

from traceview.base import units
from traceview.base.findings import LEAST_LOW_NS
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import SENTENCE, cut, drawn, joined_within, whole_sentences, wrapped
from traceview.render.document import ScoreTile
from traceview.render.report.document import header_facts, nothing_found, tiles, warnings
from traceview.render.report.plan import plan_text
from traceview.render.report.text import ARROW, INDENT, WIDEST, FindingText
from traceview.traces.analyses.base import Skipped
from traceview.traces.plan import RankedFinding
from traceview.traces.reporting import Report

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
    findings: Sequence[RankedFinding],
    width: int,
    left: int,
    links: bool = False,
) -> list[Text]:
    """A heading and the findings in at most `left` lines of `width` cells; empty without findings.

    With `links`, a source line becomes a link.
    """
    if not findings:
        return []
    entries = [FindingText(each, min(width, WIDEST), links) for each in findings]
    rated = [at for at, each in enumerate(findings) if each.finding.severity != "info"]
    first = rated[-1] + 1 if rated else _MOST_INFO
    if rated and findings[rated[0]].finding.severity == "low":
        # Notes say what takes the rest of the time.
        most_ns = max(findings[at].finding.time_at_stake_ns for at in rated)
        notes = takewhile(
            lambda each: each.finding.time_at_stake_ns > most_ns, findings[first:_MOST_INFO]
        )
        first += len([*notes])
    title = "What to do first" if rated else "Notes"
    first = min(first, len(entries))
    shown, rest = entries[:first], entries[first:]
    fitting = _with_remedies(shown, left - 1)
    lines = [line for each in fitting for line in each]
    if fewer := first - len(fitting):
        lines.append(Text(f"… and {units.counted(fewer, 'more low finding')} in --all", "dim"))
    lines += _notes(rest, left - 1 - len(lines))
    return [Text(title, "bold underline"), *lines]


def _with_remedies(entries: Sequence[FindingText], room: int) -> list[list[Text]]:
    """The entries as full as fit; without the last `low` ones where others gain their remedies, or
    they would have none."""
    lows = [*takewhile(lambda each: each.ranked.severity == "low", reversed(entries))]
    fuller = [
        _as_full_as_fit(entries[: len(entries) - fewer], room - (fewer > 0))
        for fewer in range(max(len(lows), 1))
    ]
    others = len(entries) - len(lows)

    def lacking(lines: Sequence[Sequence[Text]]) -> tuple[int, int]:
        lack = [
            bool(each.ranked.finding.action) and not _has_remedy(own)
            for each, own in zip(entries, lines, strict=False)
        ]
        return sum(lack[:others]), sum(lack)

    return min(fuller, key=lacking)


def _has_remedy(lines: Sequence[Text]) -> bool:
    return any(line.plain.startswith(f"{INDENT}{ARROW}") for line in lines)


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
    # What comes first has its action.
    high = high or medium[:1]
    rounds = [(form, at) for form in _MEDIUM_FORMS for at in medium]
    rounds += [(_FORMS[-1], at) for at in high]
    rounds += [((_HIGH_MESSAGE - 1, entries[at].least_action), at) for at in medium]
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


MOST_LINES = 40
_WIDEST_HALF = 60
_NARROWEST, _TWO_COLUMNS, _VERDICT_LINES = 40, 72, 3
_SELECTED = {"only ranges": "only", "without ranges": "without"}
_SEPARATOR = " · "
_PLAN_LINES = 4
_WARNING, _WARNING_LINES = "Warning: ", 3
_MORE = ("More: --all every table", "--only NAME one", "--explain NAME its meaning", "--html")
_LATE_WORDS = ("-bound", "-drained", "mixed", "paced", "paused")
"""What a launch verdict other than GPU-bound ends with."""


def render_screen(
    report: Report, *, width: int = 80, color: bool = False, links: bool = False
) -> str:
    """The report in at most MOST_LINES lines of at most `width` cells; styled if `color`.

    With `links`, a source line becomes a link (OSC 8) if its file is on this machine.
    """
    width = max(width, _NARROWEST)
    above = [*_opening(report, width), Text("")]
    below = [Text(""), *_closing(report, width)]
    planned = list(_plan_lines(report, width))
    left = MOST_LINES - len(above) - len(below) - len(planned)
    # The findings, without notes about negligible time.
    findings = finding_lines(
        [
            each
            for each in report.findings
            if each.finding.severity != "info"
            or not 0 < each.finding.time_at_stake_ns < LEAST_LOW_NS
        ],
        width,
        left,
        links,
    )
    findings[1:1] = planned
    nothing = [Text(line) for line in wrapped(nothing_found(report), width, left)]
    lines = [*above, *(findings or nothing), *below]
    return drawn([Text("\n").join(lines)], width, color)


def _plan_lines(report: Report, width: int) -> Iterator[Text]:
    """What the remedies win one after the other, in a few lines."""
    lead, text = "Plan: ", visible(plan_text(report), SENTENCE)
    lines = wrapped(text, min(width, WIDEST) - len(lead), _PLAN_LINES) if text else []
    for at, line in enumerate(lines):
        yield Text.assemble((f"{'' if at else lead:{len(lead)}}", "bold"), line)


def _opening(report: Report, width: int) -> Iterator[Text]:
    yield Text(_what_ran(report, width), "dim")
    for text in [visible(each, SENTENCE) for each in warnings(report)[:2]]:
        first, *rest = wrapped(text, width - len(_WARNING), _WARNING_LINES)
        yield Text.assemble((_WARNING, "bold yellow"), first)
        yield from (Text(" " * len(_WARNING) + line) for line in rest)
    if report.verdict:
        yield Text("")
        lines = wrapped(visible(report.verdict.text, SENTENCE), width, _VERDICT_LINES)
        yield from (Text(line, "bold") for line in lines)
        if shares := visible(report.verdict.shares_text, SENTENCE):
            yield from (Text(line, "dim") for line in wrapped(shares, width, _VERDICT_LINES))
    if report.scoreboard and tiles(report.scoreboard):
        yield Text("")
        yield from scoreboard_lines(tiles(report.scoreboard), width)


def _what_ran(report: Report, width: int) -> str:
    """File, selection, GPU, duration, process: as many of them as fit in one line.

    The selection is shortened rather than left out, as all figures depend on it.
    """
    facts = dict(header_facts(report.trace))
    selected = [f"{word} {facts[key]}" for key, word in _SELECTED.items() if key in facts]
    file = visible(PurePath(report.trace.path).name)
    parts = [facts[key] for key in ("GPU", "duration", "contains", "process") if key in facts]
    shown = [visible(part.replace("compute capability", "cc")) for part in parts]
    # The name leaves room for GPU and duration.
    needed = sum(len(_SEPARATOR) + cell_len(part) for part in shown[:2])
    most = width // (1 + len(selected)) if selected else max(width - needed, width // 4)
    name = shortened(file, most)
    each = (width - cell_len(name)) // max(len(selected), 1) - len(_SEPARATOR)
    chosen = [cut(visible(part), each) for part in selected]
    parts = [name, *chosen, *shown, facts.get("recorded by", "")]
    return joined_within(parts, _SEPARATOR, width)


def scoreboard_lines(each: Sequence[ScoreTile], width: int) -> Iterator[Text]:
    """Two figures per line, or one in a narrow terminal; with details if they fit."""
    half = min((width - 2) // 2, _WIDEST_HALF)
    if width < _TWO_COLUMNS:
        yield from (_tile(tile, 15, width) for tile in each)
        return
    name = max((len(tile.name) for tile in each[::2]), default=0) + 2
    for left, right in zip_longest(each[::2], each[1::2]):
        line = _tile(left, name, half)
        if right is None:
            yield line
            continue
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
    late = "yellow" if tile.value.endswith(_LATE_WORDS) else "bold"
    text.append(value, "green" if tile.value == "GPU-bound" else late)
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
