"""A comparison of runs as text for a terminal or a pipe. No name is taken as markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.render.base.safe_text import shortened, shortened_apart, visible
from traceview.render.base.text import GAP, SENTENCE, drawn, grid, heading, note_block, wrapped
from traceview.render.comparison import document
from traceview.traces.comparison import wording
from traceview.traces.comparison.changes import main_changes
from traceview.traces.comparison.comparison import CountDifference, RunComparison

MOST_PARTS, MOST_COUNTS = 24, 12
_WITH_TIMES = 76
"""Least width in cells to show the times of both sides."""
_LEAST_NAME, _LEAST_PLACE = 16, 8
_DIFFERENCE, _SHARE = "difference", "share"
_STYLES = {1: "red", -1: "green", 0: "dim"}


def render_text(comparison: RunComparison, *, width: int = 80, color: bool = False) -> str:
    """The comparison in lines of at most `width` cells; with ANSI styles if `color`."""
    blocks = [block for block in _blocks(comparison, width) if block is not None]
    return drawn(blocks, width, color)


def _blocks(comparison: RunComparison, width: int) -> Iterator[RenderableType | None]:
    names = [visible(name) for name in document.sides(comparison)]
    room = (width - 3) // 2
    if sum(map(cell_len, names)) + 3 > width:
        names = [shortened(name, room) for name in names]
    facts = [visible(each) for each in document.compared_sides(comparison)]
    yield Text.assemble((f"{names[0]} → {names[1]}", "bold"), "\n", (" · ".join(facts), "dim"))
    yield note_block(visible(wording.headline(comparison), SENTENCE), "")
    yield _environment(comparison)
    yield _changes(comparison, width)
    yield _parts(comparison, width)
    yield _counts(comparison)
    notes = [note_block("Note: ", note, "dim") for note in wording.notes(comparison)]
    yield Group(*notes) if notes else None


def _environment(comparison: RunComparison) -> RenderableType | None:
    if not comparison.environment:
        return None
    rows = grid("", "", "", "")
    for each in comparison.environment:
        rows.add_row(
            Text(wording.environment_name(each), "yellow"),
            Text(visible(each.before, 200)),
            Text("→", "dim"),
            Text(visible(each.after, 200)),
        )
    return Group(heading("The two sides differ in"), rows)


def _changes(comparison: RunComparison, width: int) -> RenderableType | None:
    listed = main_changes(comparison)
    if not listed:
        return None
    differences = document.change_differences(comparison, listed)
    rows = grid("right", "")
    room = width - max(map(cell_len, differences)) - GAP
    for change, signed in zip(listed, differences, strict=True):
        # Wrapped here: a grid would break kernel names anywhere.
        lines = wrapped(visible(change.text, SENTENCE), max(room, 20), 4)
        rows.add_row(Text(signed, _style(change.delta_ns)), Text("\n".join(lines)))
    return Group(heading("What changed"), rows)


def _style(delta: Fraction) -> str:
    return _STYLES[(delta > 0) - (delta < 0)]


def _parts(comparison: RunComparison, width: int) -> RenderableType:
    table = document.parts_table(comparison, MOST_PARTS)
    lines = [_Line("sum", table.total, "bold"), *_lines(table)]
    # The columns of numbers, each with its heading first.
    every = [line.amounts for line in lines]
    columns = [
        ["before", *(each.before for each in every)],
        ["after", *(each.after for each in every)],
        [_DIFFERENCE, *(each.difference for each in every)],
        [_SHARE, *(each.share for each in every)],
    ]
    numbers = columns[0 if (width >= _WITH_TIMES) else 2 : 4 if table.has_shares else 3]
    room = width - sum(max(map(cell_len, column)) + GAP for column in numbers)
    room = max(room, _LEAST_NAME)
    names = shortened_apart(list(_placed(lines, room)), room)
    rows = grid("", *("right" for _ in numbers))
    rows.add_row(*(Text(name, "dim") for name in ("", *(column[0] for column in numbers))))
    for at in (*range(1, len(lines)), 0):
        line = lines[at]
        cells = (Text(column[at + 1], _cell_style(column[0], line)) for column in numbers)
        rows.add_row(Text(names[at], line.style), *cells)
    return Group(heading(f"Parts of the difference, {document.per_step(comparison, table)}"), rows)


@record
class _Line:
    title: str
    amounts: document.Amounts
    style: str = ""
    place: str = ""


def _placed(lines: Sequence[_Line], room: int) -> Iterator[str]:
    """The titles with their places, shortened to the room that titles leave them.

    Where that is too little there is none, unless it tells equal titles apart.
    """
    titles = Counter(line.title for line in lines)
    for line in lines:
        left = room - cell_len(f"{line.title} []")
        if not line.place or (left < _LEAST_PLACE and titles[line.title] == 1):
            yield line.title
        else:
            place = shortened(line.place, left) if left >= _LEAST_PLACE else line.place
            yield f"{line.title} [{place}]"


def _cell_style(column: str, line: _Line) -> str:
    if column == _SHARE:
        return "dim"
    moved = _style(line.amounts.delta_ns) if column == _DIFFERENCE else ""
    return f"{line.style} {moved}".strip()


def _lines(table: document.PartsTable) -> Iterator[_Line]:
    """The groups with their parts; a group of one part is one line."""
    for group in table.groups:
        title = visible(group.title)
        if len(group.parts) == 1 and not group.left_out:
            name, place = _titled(group.parts[0])
            whole = name if title in name else f"{title}: {name}"
            yield _Line(whole, group.amounts, "bold", place)
            continue
        yield _Line(title, group.amounts, "bold")
        for part in group.parts:
            name, place = _titled(part)
            yield _Line(f"  {name}", part.amounts, place=place)
        if group.rest and group.parts:
            yield _Line(f"  {units.count(group.left_out)} smaller", group.rest)


def _titled(line: document.PartLine) -> tuple[str, str]:
    """The name of a part with its change, and its place."""
    change = f" ({line.change})" if line.change else ""
    return visible(line.title) + change, visible(wording.short_place(line.part.place), 120)


def _counts(comparison: RunComparison) -> RenderableType | None:
    changed = wording.changed_counts(comparison)
    if not changed:
        return None
    per = wording.PER_STEP if wording.has_steps(comparison) else ""
    rows = grid("", "right", "", "right", "")
    for count in changed[:MOST_COUNTS]:
        rows.add_row(*_count_cells(count))
    return Group(heading(f"Counts{per} that changed"), rows)


def _count_cells(count: CountDifference) -> list[Text]:
    return [
        Text(visible(wording.count_name(count))),
        Text(wording.count_text(count, count.before)),
        Text("→", "dim"),
        Text(wording.count_text(count, count.after)),
        Text("differs between runs" if count.varies else "", "dim"),
    ]
