"""A comparison of kernels in words: what is equal, and a row for each thing that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from traceview import units
from traceview.findings import Finding
from traceview.inspect.compare.comparison import Comparison, Diff, Quantity, Value, same_code
from traceview.inspect.compare.lines import Moved, Moves
from traceview.inspect.sass_vs_ptx import widths_text
from traceview.ptx.model import How, Level
from traceview.render.kernels.source_names import SourceNames
from traceview.render.kernels.summary import HOW
from traceview.render.kernels.summary import circumstances as said_of

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


@dataclass(frozen=True)
class Row:
    """One thing that differs, its value in each version, and the change where that can be said."""

    name: str
    values: tuple[str, ...]
    change: str
    is_part: bool = False
    """Whether it is one of the summands of the row above."""


def names_of(diff: Diff) -> SourceNames:
    """What the source lines of all versions are called."""
    return SourceNames.of(kernel for version in diff.versions for kernel in version.report.kernels)


def rows(comparison: Comparison, names: SourceNames) -> list[Row]:
    """What differs: figures first, then accesses by source line."""
    figures = [_figure(quantity) for quantity in comparison.quantities if quantity.differs]
    return figures + [row for moves in comparison.moves for row in _lines(moves, names)]


def circumstances(comparison: Comparison) -> list[str]:
    """How all versions came to be compiled, as far as that is the same."""
    return [_said(q) for q in comparison.quantities if q.topic in _GIVEN and not q.differs]


def equal(comparison: Comparison, names: SourceNames) -> list[str]:
    """What else is the same in all versions, said once."""
    told = [_said(q) for q in comparison.quantities if q.topic not in _GIVEN and not q.differs]
    moved = [text for moves in comparison.moves for text in _equal_lines(moves, names)]
    return told + moved + (["the PTX, to the letter"] if same_code(comparison) else [])


@dataclass(frozen=True)
class Told:
    """A finding, the versions that have it, and what each of them says if that differs."""

    finding: Finding
    versions: tuple[int, ...]
    messages: tuple[tuple[tuple[int, ...], str], ...]


def findings(comparison: Comparison) -> list[Told]:
    """The findings of all versions; one that several have is told once."""
    return [_told(same) for same in comparison.findings]


def presence(told: Told, labels: Sequence[str]) -> str:
    """In which versions a finding is: with two of them, that it vanishes or appears."""
    if len(told.versions) == len(labels):
        return "in each"
    if len(labels) == 2:
        return "vanishes" if told.versions == (0,) else "appears"
    return f"in {', '.join(labels[version] for version in told.versions)}"


def notes(comparison: Comparison, diff: Diff) -> list[str]:
    """The notes on a kernel: what all versions say once, the rest under their names."""
    said: dict[str, list[int]] = {}
    for version, kernel in enumerate(comparison.kernels):
        for note in (*kernel.compiled.notes, *kernel.notes):
            said.setdefault(note, []).append(version)
    return [
        note if len(versions) == len(diff.versions) else f"{_labelled(versions, diff)}: {note}"
        for note, versions in said.items()
    ]


def left_out(diff: Diff) -> list[str]:
    """The kernels that were not compared, and why."""
    others = "the other version" if len(diff.versions) == 2 else "every other version"
    said = f"has no counterpart of its name and configuration in {others}"
    return [
        f"{kernel.name} of {diff.labels[version]} {said} "
        f"({said_of(kernel, diff.versions[version].report.kernels)})"
        for version, kernel in diff.left_out
    ]


def _labelled(versions: Sequence[int], diff: Diff) -> str:
    return ", ".join(diff.labels[version] for version in versions)


def _told(same: Sequence[Finding | None]) -> Told:
    there = {version: finding for version, finding in enumerate(same) if finding}
    by_message: dict[str, list[int]] = {}
    for version, finding in there.items():
        by_message.setdefault(finding.message, []).append(version)
    messages = tuple((tuple(versions), message) for message, versions in by_message.items())
    return Told(next(iter(there.values())), tuple(there), messages)


def _said(quantity: Quantity) -> str:
    """A name and its value; what is called by its value alone stands so."""
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


def _figure(quantity: Quantity) -> Row:
    values = tuple(_value(quantity, value) for value in quantity.values)
    part = quantity.topic == "instructions" and quantity.name != "all"
    change = _change(_unit_name(quantity), quantity.values)
    return Row(_name(quantity), values, change, part)


def _unit_name(quantity: Quantity) -> str:
    """What tells the unit: a name that the user gave is none, whatever it ends in."""
    return "" if quantity.topic in _NAMED_BY_USER else quantity.name


def _change(name: str, values: Sequence[Value]) -> str:
    """From the first to the second of two numbers: the difference, and its share."""
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


def _lines(moves: Moves, names: SourceNames) -> Iterator[Row]:
    """A row for PTX and one for SASS; one for both if they say the same of every version."""
    said_once: dict[tuple[str, ...], list[Level]] = {}
    for level, moved in moves.levels.items():
        if moves.differs(level):
            said_once.setdefault(tuple(_moved(each) for each in moved), []).append(level)
    for values, levels in said_once.items():
        name = f"{_place(moves, names)} ({_levels(levels)})"
        yield Row(name, values, _width_change(moves.levels[levels[0]]))


def _equal_lines(moves: Moves, names: SourceNames) -> Iterator[str]:
    equal = {level: moved[0] for level, moved in moves.levels.items() if not moves.differs(level)}
    said_once: dict[str, list[Level]] = {}
    for level, moved in equal.items():
        said_once.setdefault(_moved(moved), []).append(level)
    for text, levels in said_once.items():
        yield f"{_place(moves, names)} {text} ({_levels(levels)})"


def _levels(levels: Sequence[Level]) -> str:
    return " = ".join(_LEVELS[level] for level in levels)


def _place(moves: Moves, names: SourceNames) -> str:
    lines = dict.fromkeys(names.of_line(source) for source in moves.sources if source)
    return f"{' → '.join(lines) or '?'} {moves.space} {moves.kind}"


def _moved(moved: Moved | None) -> str:
    """What moves there: – where the code is not known."""
    if moved is None:
        return ABSENT
    unsized = [f"{moved.unsized} × ? bits"] if moved.unsized else []
    return " + ".join(filter(None, [widths_text(moved.widths), *unsized])) or "none"


def _width_change(moved: Sequence[Moved | None]) -> str:
    """From the first to the second of two versions: in width or, if that stays, in number."""
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
