"""A comparison of kernels in words, a row per difference, and side by side in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.kernels.inspect.comparison import Comparison, Diff, Quantity, Value, same_code
from traceview.kernels.inspect.matching import LevelAccesses, PlaceAccesses
from traceview.kernels.inspect.recompilations import widths_text
from traceview.kernels.ptx.model import How, Level
from traceview.render.base.safe_text import visible
from traceview.render.base.text import (
    GAP,
    SENTENCE,
    SEVERITY_STYLES,
    TerminalColumn,
    cells,
    drawn,
    grid,
    heading,
    note_blocks,
)
from traceview.render.kernels.names import SourceNames
from traceview.render.kernels.summary import HOW
from traceview.render.kernels.summary import circumstances as how_compiled

ABSENT = units.ABSENT
_GIVEN = ("launch", "constexprs", "arguments")
_NAMED_BY_USER = ("constexprs", "arguments", "tensor cores")
_LEVELS: dict[Level, str] = {"ptx": "PTX", "sass": "SASS"}
_NAMES = {
    "num_warps": "warps",
    "num_stages": "stages",
    "limited_by": "occupancy limited by",
    "spill_bytes": "spills",
    "stack_bytes": "stack",
    "theoretical_occupancy_pct": "occupancy",
}


@record
class DiffRow:
    """One difference: its value in each version, and for two numbers their change."""

    name: str
    values: tuple[str, ...]
    change: str
    is_part: bool = False
    """Whether it is part of the sum in a row above."""


def names_of(diff: Diff) -> SourceNames:
    """The short names of the source lines of all versions."""
    return SourceNames.of(kernel for version in diff.versions for kernel in version.report.kernels)


def rows(comparison: Comparison, names: SourceNames) -> list[DiffRow]:
    """The differences: figures first, then accesses by source line."""
    figures = [_figure(quantity) for quantity in comparison.quantities if quantity.differs]
    return figures + [row for moves in comparison.moves for row in _lines(moves, names)]


def circumstances(comparison: Comparison) -> list[str]:
    """The compilation options that all versions share."""
    return [_text(q) for q in comparison.quantities if q.topic in _GIVEN and not q.differs]


def equal(comparison: Comparison, names: SourceNames) -> list[str]:
    """All other properties that are equal in all versions."""
    same = [_text(q) for q in comparison.quantities if q.topic not in _GIVEN and not q.differs]
    moved = [text for moves in comparison.moves for text in _equal_lines(moves, names)]
    return same + moved + (["identical PTX"] if same_code(comparison) else [])


@record
class SharedFinding:
    """A finding, the versions that have it, and each distinct message with its versions."""

    finding: Finding
    versions: tuple[int, ...]
    messages: tuple[tuple[tuple[int, ...], str], ...]


def findings(comparison: Comparison) -> list[SharedFinding]:
    """The findings of all versions; a finding that several share appears once."""
    return [_shared(same) for same in comparison.findings]


def presence(finding: SharedFinding, labels: Sequence[str]) -> str:
    """The versions that have a finding; of two versions, whether it vanishes or appears."""
    if len(finding.versions) == len(labels):
        return "in both" if len(labels) == 2 else "in all"
    if len(labels) == 2:
        return "vanishes" if finding.versions == (0,) else "appears"
    return f"in {', '.join(labels[version] for version in finding.versions)}"


def notes(comparison: Comparison, diff: Diff) -> list[str]:
    """The notes on a kernel, with the labels of their versions unless all have them."""
    versions_of: dict[str, list[int]] = {}
    for version, kernel in enumerate(comparison.kernels):
        for note in (*kernel.compiled.notes, *kernel.notes):
            versions_of.setdefault(note, []).append(version)
    return [
        note if len(versions) == len(diff.versions) else f"{_labelled(versions, diff)}: {note}"
        for note, versions in versions_of.items()
    ]


def left_out(diff: Diff) -> list[str]:
    """The kernels that were not compared, and why."""
    others = "the other version" if len(diff.versions) == 2 else "every other version"
    reason = f"has no counterpart with its name and configuration in {others}"
    return [
        f"{kernel.name} of {diff.labels[version]} {reason} "
        f"({how_compiled(kernel, diff.versions[version].report.kernels)})"
        for version, kernel in diff.left_out
    ]


def _labelled(versions: Sequence[int], diff: Diff) -> str:
    return ", ".join(diff.labels[version] for version in versions)


def _shared(same: Sequence[Finding | None]) -> SharedFinding:
    present = {version: finding for version, finding in enumerate(same) if finding}
    by_message: dict[str, list[int]] = {}
    for version, finding in present.items():
        by_message.setdefault(finding.message, []).append(version)
    messages = tuple((tuple(versions), message) for message, versions in by_message.items())
    return SharedFinding(next(iter(present.values())), tuple(present), messages)


def _text(quantity: Quantity) -> str:
    """A name and its value, or the value alone if it is self-explanatory."""
    name, value = _name(quantity), _value(quantity, quantity.values[0])
    if quantity.name in ("arch", "how"):
        return value
    if quantity.topic == "constexprs":
        return f"{name}={value}"
    counted = quantity.topic == "instructions" and quantity.name != "all"
    return f"{name} instructions {value}" if counted else f"{name} {value}"


def _name(quantity: Quantity) -> str:
    if quantity.topic in _NAMED_BY_USER:
        return quantity.name
    if quantity.topic == "instructions":
        return "instructions" if quantity.name == "all" else quantity.name
    return _NAMES.get(quantity.name) or units.stem(quantity.name)


def _value(quantity: Quantity, value: Value) -> str:
    if quantity.name == "how" and value is not None:
        return HOW[cast(How, value)]
    return units.quantity(_unit_name(quantity), value)


def _figure(quantity: Quantity) -> DiffRow:
    values = tuple(_value(quantity, value) for value in quantity.values)
    part = quantity.topic == "instructions" and quantity.name != "all"
    change = _change(_unit_name(quantity), quantity.values)
    return DiffRow(_name(quantity), values, change, part)


def _unit_name(quantity: Quantity) -> str:
    """The name whose suffix is the unit; empty for names that the user chose."""
    return "" if quantity.topic in _NAMED_BY_USER else quantity.name


def _change(name: str, values: Sequence[Value]) -> str:
    """The change between two numbers, absolute and in percent."""
    if len(values) != 2:
        return ""
    before, after = values
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return ""
    by = after - before
    if not by:
        return ""
    sign = "+" if by > 0 else "-"
    if units.unit_of(name) == "pct":
        return f"{sign}{abs(by):.1f} points"
    share = f" ({sign}{abs(100 * by / before):.0f} %)" if before else ""
    return f"{sign}{units.quantity(name, abs(by))}{share}"


def _lines(moves: PlaceAccesses, names: SourceNames) -> Iterator[DiffRow]:
    """A row for PTX and one for SASS, or one for both if they are equal in every version."""
    levels_of: dict[tuple[str, ...], list[Level]] = {}
    for level, moved in moves.levels.items():
        if moves.differs(level):
            levels_of.setdefault(tuple(_moved(each) for each in moved), []).append(level)
    for values, levels in levels_of.items():
        name = f"{_place(moves, names)} ({_levels(levels)})"
        yield DiffRow(name, values, _width_change(moves.levels[levels[0]]))


def _equal_lines(moves: PlaceAccesses, names: SourceNames) -> Iterator[str]:
    equal = {level: moved[0] for level, moved in moves.levels.items() if not moves.differs(level)}
    levels_of: dict[str, list[Level]] = {}
    for level, moved in equal.items():
        levels_of.setdefault(_moved(moved), []).append(level)
    for text, levels in levels_of.items():
        yield f"{_place(moves, names)} {text} ({_levels(levels)})"


def _levels(levels: Sequence[Level]) -> str:
    return " = ".join(_LEVELS[level] for level in levels)


def _place(moves: PlaceAccesses, names: SourceNames) -> str:
    lines = list(dict.fromkeys(names.of_line(source) for source in moves.sources if source)) or [
        "?"
    ]
    file = f"{lines[0].rpartition(':')[0]}:"
    shown = " → ".join([lines[0], *(line.removeprefix(file) for line in lines[1:])])
    return f"{shown} {moves.space} {moves.kind}"


def _moved(moved: LevelAccesses | None) -> str:
    """The access widths at a place; `–` if the code is unknown."""
    if moved is None:
        return ABSENT
    unsized = [f"{moved.unsized} × ? bits"] if moved.unsized else []
    return " + ".join(filter(None, [widths_text(moved.widths), *unsized])) or "none"


def _width_change(moved: Sequence[LevelAccesses | None]) -> str:
    """The change from the first to the second version, in width or else in count."""
    if len(moved) != 2 or moved[0] is None or moved[1] is None:
        return ""
    before, after = moved[0], moved[1]
    if not (before.count and after.count):
        return "new" if after.count else "gone"
    if not (before.widths and after.widths):
        return ""
    widest, now = max(before.widths), max(after.widths)
    if widest == now:
        return _change("", (before.count, after.count))
    return "wider" if now > widest else "narrower"


_LEAST = 6
_MOST_EQUAL = 4_000
_CHANGE = "change"


def render_diff_text(diff: Diff, *, width: int = 80, color: bool = False) -> str:
    """All comparisons in lines of at most `width` cells; with `color`, ANSI styles."""
    names = names_of(diff)
    blocks = [b for each in diff.comparisons for b in _comparison(each, diff, names, width)]
    return drawn([*blocks, *note_blocks("Left out: ", left_out(diff))], width, color)


def _comparison(
    comparison: Comparison, diff: Diff, names: SourceNames, width: int
) -> Iterator[RenderableType]:
    how = visible(" · ".join(circumstances(comparison)), SENTENCE)
    lines = [Text(how)] if how else []
    yield Group(heading(visible(comparison.short_name), visible(_versions(diff))), *lines)
    differing = rows(comparison, names)
    if differing:
        first = (diff.option or "").removeprefix("--")
        labels = [version.label for version in diff.versions]
        columns = list(
            zip(
                *(
                    (f"  {row.name}" if row.is_part else row.name, *row.values, row.change)
                    for row in differing
                ),
                strict=True,
            )
        )
        heads = (first, *labels, _CHANGE if len(labels) == 2 else "")
        yield cells(_fitted(heads, columns, width))
    else:
        yield Text("Nothing differs.")
    same = " · ".join(equal(comparison, names))
    yield Text.assemble(("equal: ", "bold dim"), visible(same, _MOST_EQUAL))
    yield from _findings(findings(comparison), diff)
    yield from note_blocks("Note: ", notes(comparison, diff))


def _versions(diff: Diff) -> str:
    if diff.option == "--kernel":
        return ""
    labels = [version.label for version in diff.versions]
    return " ".join(filter(None, (diff.option, " → ".join(labels))))


def _fitted(
    heads: Sequence[str], columns: Sequence[Sequence[str]], width: int
) -> list[TerminalColumn]:
    """Columns as wide as their texts, of which the widest are cut until all fit."""
    shown = [_column(head, texts) for head, texts in zip(heads, columns, strict=True)]
    shown = [column for column in shown if column.heading or any(column.cells)]
    widths = [column.width for column in shown]
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return [replace(column, width=least) for column, least in zip(shown, widths, strict=True)]


def _column(head: str, texts: Sequence[str]) -> TerminalColumn:
    column = tuple(visible(text) for text in texts)
    head = visible(head)
    return TerminalColumn(head, True, column, max(map(cell_len, (head, *column))))


def _findings(shared: Iterable[SharedFinding], diff: Diff) -> Iterator[RenderableType]:
    labels = [version.label for version in diff.versions]
    table = grid("", "", "")
    for each in shared:
        severity = each.finding.severity
        versions = Text(visible(presence(each, labels)), "bold")
        table.add_row(Text(severity, SEVERITY_STYLES[severity]), versions, _text_of(each, labels))
    if table.row_count:
        yield table
    else:
        yield Text("No findings in any version.")


def _text_of(finding: SharedFinding, labels: Sequence[str]) -> Text:
    """One entry for a finding; messages that differ start with the labels of their versions."""
    text = Text()
    for versions, message in finding.messages:
        which = ", ".join(labels[version] for version in versions)
        lead = f"{visible(which)}: " if len(finding.messages) > 1 else ""
        text.append(lead, "bold").append(f"{visible(message, SENTENCE)}\n")
    text.append("→ ", "bold").append(visible(finding.finding.action, SENTENCE))
    return text.append(f"\n{visible(finding.finding.evidence.basis, SENTENCE)}", "dim")
