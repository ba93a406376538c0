"""A comparison of runs as every output shows it: its sides, the parts of the difference, and its
document.

The printed differences of a group's parts sum to the group's difference, those of the groups to the
total, and before plus difference is after, digit by digit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import PurePath

from traceview.base import units
from traceview.base.records import record
from traceview.render.base.safe_text import visible
from traceview.render.document import Document, Entries, Grid, GridRow, Section
from traceview.traces.comparison import wording
from traceview.traces.comparison.changes import RunChange, main_changes
from traceview.traces.comparison.comparison import (
    CountDifference,
    EnvironmentDifference,
    PartDifference,
    RunComparison,
)
from traceview.traces.comparison.figures import RunFigures

_MOST_NAMED = 2


def sides(comparison: RunComparison) -> tuple[str, str]:
    """The names of the runs of each side."""
    return _named(comparison.before), _named(comparison.after)


def _named(runs: Sequence[RunFigures]) -> str:
    names = [PurePath(run.name).name or run.name for run in runs]
    if len(names) > _MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} more"
    return ", ".join(names)


def compared_sides(comparison: RunComparison) -> list[str]:
    """The GPU, and the runs and steps of both sides."""
    gpus = {run.environment.get("gpu", "") for run in (*comparison.before, *comparison.after)}
    steps = [sum(run.steps for run in runs) for runs in (comparison.before, comparison.after)]
    runs = [len(comparison.before), len(comparison.after)]
    stepped = all(run.has_steps for run in (*comparison.before, *comparison.after))
    return [
        *(gpus if len(gpus) == 1 and all(gpus) else ()),
        both_sides(runs, "run"),
        *([both_sides(steps, "steady step")] if stepped else []),
    ]


def both_sides(numbers: Sequence[int], noun: str) -> str:
    """Counts of both sides: `5 runs per side`, `4 and 5 runs`."""
    one, other = numbers
    if one == other:
        return f"{units.counted(one, noun)} per side"
    return f"{units.count(one)} and {units.counted(other, noun)}"


LEAST_SHARE = Fraction(1, 100)
"""Parts below this fraction of the difference (or of the largest part if that is larger) are
summed."""
OTHER = "other parts"
_MOST_SHARE = 10
"""If parts this many times larger than the difference cancel, shares mean nothing."""
_MOST_OF_GROUP = 8
"""Most parts of one group, if the number of parts is limited."""


@record
class Amounts:
    """The time of one part or of several as printed, in `unit`, and its exact difference."""

    before: str
    after: str
    difference: str
    share: str
    unit: str
    delta_ns: Fraction


@record
class PartLine:
    """One part. `details` are a name and the values before and after."""

    part: PartDifference
    title: str
    change: str
    amounts: Amounts
    details: tuple[tuple[str, str, str], ...]


@record
class GroupLine:
    """A group of parts, such as one class of kernels, idle time or copies.

    `parts` are its largest ones; `rest` is the sum of the `left_out` others. `meaning` selects the
    group's colour.
    """

    title: str
    meaning: str
    amounts: Amounts
    parts: tuple[PartLine, ...]
    rest: Amounts | None
    left_out: int


@record
class PartsTable:
    """All groups, largest difference first, and their sum; `largest_ns` is the first's size.

    Without `has_shares`, parts cancel so far that shares of the difference mean nothing.
    """

    groups: tuple[GroupLine, ...]
    total: Amounts
    largest_ns: Fraction
    has_shares: bool


_MORE_DIGITS = 2
"""The sums of the table are the times of the headline, if need be with so many more digits."""


def _agree(one: str, other: str) -> bool:
    """Whether two times in one unit are equal as far as both are printed."""
    numbers = [text.partition(" ")[0].replace(",", "") for text in (one, other)]
    digits = min(len(number.partition(".")[2]) for number in numbers)
    first, second = (f"{float(number):.{digits}f}" for number in numbers)
    return first == second


def parts_table(comparison: RunComparison, most: int | None = None) -> PartsTable:
    """The table of a comparison, with at most `most` parts listed individually."""
    figures = _Figures.of(comparison)
    shown = _shown(comparison, most)
    groups: dict[str, list[int]] = defaultdict(list)
    for row in sorted(range(len(comparison.parts)), key=lambda r: -_size(comparison, r)):
        groups[wording.group_title(comparison.parts[row])].append(row)
    small = [title for title, rows in groups.items() if _is_small(comparison, rows, shown)]
    if len(small) > 1:
        groups[OTHER] = [row for title in small for row in groups.pop(title)]
    lines = [_group(comparison, figures, *named, shown) for named in groups.items()]
    lines = [line for line in lines if line.parts or line.amounts.delta_ns]
    lines.sort(key=lambda group: -abs(group.amounts.delta_ns))
    largest = max((abs(group.amounts.delta_ns) for group in lines), default=Fraction(0))
    total = figures.amounts(range(len(comparison.parts)))
    return PartsTable(tuple(lines), total, largest, figures.shares)


def per_step(comparison: RunComparison, table: PartsTable) -> str:
    """The unit of the table's numbers, such as `ms per step`."""
    per = "per step" if wording.has_steps(comparison) else "of steady GPU time"
    return f"{table.total.unit} {per}"


def change_differences(comparison: RunComparison, changes: Sequence[RunChange]) -> list[str]:
    """The difference of each change: the sum of the table's differences for its parts."""
    figures = _Figures.of(comparison)
    rows = {id(part): row for row, part in enumerate(comparison.parts)}
    return [figures.deltas.signed(*(rows[id(p)] for p in change.parts)) for change in changes]


@record
class _Figures:
    """The times of all parts, rounded consistently."""

    comparison: RunComparison
    before: units.RoundedTimes
    deltas: units.RoundedTimes
    after: units.RoundedTimes
    shares: bool

    @classmethod
    def of(cls, comparison: RunComparison) -> _Figures:
        largest = max(float(comparison.before_ns), float(comparison.after_ns))
        delta = float(abs(comparison.delta_ns))
        parts, more_digits = comparison.parts, 0
        headline = units.durations(float(comparison.before_ns), float(comparison.after_ns))
        for digits in range(_MORE_DIGITS + 1):
            one, moved = (
                units.rounded_times([whole], largest, delta, None, digits)
                for whole in (comparison.before_ns, comparison.delta_ns)
            )
            sums = (one.number(0), one.plus(moved).number(0))
            if all(map(_agree, sums, headline)):
                more_digits = digits
                break
        deltas = units.rounded_times(
            [part.delta_ns for part in parts], largest, delta, None, more_digits
        )
        # What is on one side only takes nothing on the other.
        one_sided = {
            row: -deltas.ticks[row] if part.before_ns else 0
            for row, part in enumerate(parts)
            if not (part.before_ns and part.after_ns)
        }
        before = units.rounded_times(
            [part.before_ns for part in parts], largest, delta, one_sided, more_digits
        )
        most = max((abs(part.delta_ns) for part in comparison.parts), default=Fraction(0))
        shares = most < _MOST_SHARE * abs(comparison.delta_ns)
        return cls(comparison, before, deltas, before.plus(deltas), shares)

    def amounts(self, rows: Sequence[int]) -> Amounts:
        parts, whole = self.comparison.parts, self.comparison.delta_ns
        delta = sum((parts[row].delta_ns for row in rows), Fraction(0))
        return Amounts(
            self.before.number(*rows),
            self.after.number(*rows),
            self.deltas.signed_number(*rows),
            units.percent(float(delta / whole) * 100).replace("-", "−") if self.shares else "",
            self.before.unit,
            delta,
        )


def _size(comparison: RunComparison, row: int) -> Fraction:
    return abs(comparison.parts[row].delta_ns)


def _shown(comparison: RunComparison, most: int | None) -> frozenset[int]:
    """The rows of the parts to list individually: those with the largest differences."""
    least = _least(comparison)
    rows = [row for row in range(len(comparison.parts)) if _size(comparison, row) >= least]
    rows.sort(key=lambda row: -_size(comparison, row))
    if most is None:
        return frozenset(rows)
    groups: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        groups[wording.group_title(comparison.parts[row])].append(row)
    first = {row for members in groups.values() for row in members[:_MOST_OF_GROUP]}
    return frozenset([row for row in rows if row in first][:most])


def _group(
    comparison: RunComparison,
    figures: _Figures,
    title: str,
    rows: Sequence[int],
    shown: frozenset[int],
) -> GroupLine:
    parts, others = comparison.parts, [row for row in rows if row not in shown]
    return GroupLine(
        title,
        "other" if title == OTHER else _meaning(parts[rows[0]]),
        figures.amounts(rows),
        tuple(_line(parts[row], figures.amounts([row])) for row in rows if row in shown),
        figures.amounts(others) if others else None,
        len(others),
    )


def _least(comparison: RunComparison) -> Fraction:
    largest = max((abs(part.delta_ns) for part in comparison.parts), default=Fraction(0))
    return max(max(abs(comparison.delta_ns), largest) * LEAST_SHARE, Fraction(1, 1000))


def _is_small(comparison: RunComparison, rows: Sequence[int], shown: frozenset[int]) -> bool:
    """Whether neither a part of a group nor their sum is worth a line."""
    delta = sum((comparison.parts[row].delta_ns for row in rows), Fraction(0))
    return shown.isdisjoint(rows) and abs(delta) < _least(comparison)


def _meaning(part: PartDifference) -> str:
    """The colour of a group, by its name in render/base/code.py."""
    if part.kind == "kernel":
        return part.group or "other"
    return "unknown" if part.kind == "idle" else part.kind


def _line(part: PartDifference, amounts: Amounts) -> PartLine:
    # Only the cause: the group is titled idle, and a sentence above explains the cause.
    title = part.name if part.kind == "idle" else wording.part_title(part)
    change = {"same": "", "reconfigured": "other size"}.get(part.change, part.change)
    change = part.change if part.kind == "kernel" and change == "other size" else change
    change = "other memory" if wording.other_memory(part) else change
    return PartLine(part, title, change, amounts, tuple(_details(part)))


def _details(part: PartDifference) -> Iterator[tuple[str, str, str]]:
    """Calls, time per call and launch configuration on both sides."""
    if part.calls_before or part.calls_after:
        yield "calls per step", _number(part.calls_before), _number(part.calls_after)
        yield (
            "time per call",
            _each(part.before_ns, part.calls_before),
            _each(part.after_ns, part.calls_after),
        )
    if part.change == "renamed" and part.before and part.after:
        yield "name", part.before.name, part.after.name
    shapes = [side.shape if side else None for side in (part.before, part.after)]
    sides = [dict(wording.shape_values(shape)) if shape else {} for shape in shapes]
    for name in dict.fromkeys((*sides[0], *sides[1])):
        yield name, sides[0].get(name, units.ABSENT), sides[1].get(name, units.ABSENT)


def _number(value: Fraction) -> str:
    return units.count(int(value) if value.denominator == 1 else float(value))


def _each(time: Fraction, calls: Fraction) -> str:
    return units.duration(float(time / calls)) if calls else units.ABSENT


MOST_PARTS = 30
_MOST_NAME = 120


def comparison_document(comparison: RunComparison) -> Document:
    """Two sides, with at most MOST_PARTS parts listed individually."""
    return Document(
        facts=(" → ".join(map(_name, sides(comparison))), *compared_sides(comparison)),
        headline=wording.headline(comparison),
        warnings=tuple(map(_difference, comparison.environment)),
        sections=(Section("", tuple(_parts(comparison)), aside=False),),
        notes=tuple(wording.notes(comparison)),
    )


def _name(name: str) -> str:
    """Both of two names in one text have to be seen."""
    return visible(name, _MOST_NAME)


def _difference(each: EnvironmentDifference) -> tuple[str, str]:
    text = f"{_name(each.before)} before, {_name(each.after)} after"
    return f"Different {wording.environment_name(each)}", text


def _parts(comparison: RunComparison) -> Iterator[Entries | Grid]:
    changes = main_changes(comparison)
    differences = change_differences(comparison, changes)
    texts = (change.text for change in changes)
    yield Entries(tuple(zip(differences, texts, strict=True)), figures=True)
    table = parts_table(comparison, MOST_PARTS)
    numbers = ("before", "after", "difference", *(["share"] if table.has_shares else []))
    heading = f"part, {per_step(comparison, table)}"
    yield Grid((heading, "where"), tuple(_rows(table)), numbers)
    if counts := tuple(map(_count, wording.changed_counts(comparison))):
        per = wording.PER_STEP if wording.has_steps(comparison) else ""
        yield Grid((f"count{per}",), counts, ("before", "after"))


def _count(count: CountDifference) -> GridRow:
    values = (wording.count_text(count, value) for value in (count.before, count.after))
    return GridRow((wording.count_name(count), *values))


def _rows(table: PartsTable) -> Iterator[GridRow]:
    for group in table.groups:
        yield _row(group.title, "", group.amounts, strong=True)
        for line in group.parts:
            name = f"{line.title} ({line.change})" if line.change else line.title
            yield _row(name, line.part.place, line.amounts)
        if group.rest and group.parts:
            yield _row(f"{units.count(group.left_out)} smaller", "", group.rest)
    yield _row("sum", "", table.total, strong=True)


def _row(name: str, place: str, amounts: Amounts, strong: bool = False) -> GridRow:
    share = [amounts.share] if amounts.share else []
    numbers = (amounts.before, amounts.after, amounts.difference, *share)
    return GridRow((name, place, *numbers), strong)
