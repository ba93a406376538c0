"""Text for a width: blocks of a report, cut sentences, the columns of a table that fit."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import Cell, Table, TableSpec
from traceview.render.base.safe_text import cells_of, visible

if TYPE_CHECKING:
    from rich.table import Table as Grid


_ELLIPSIS = "…"
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_UNITS = frozenset(("%", "ns", "µs", "ms", "s", *_SIZES, *(f"{size}/s" for size in _SIZES)))
_SEPARATOR = " · "
_LONGEST_PART = 30
_LEAST_END = 12
"""Least cells of a last line; a shorter one gets words from the lines before."""
_LAST_CLAUSE = 0.75
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")


def wrapped(text: str, width: int, most: int) -> list[str]:
    """The text in at most `most` lines of `width` cells.

    Text that does not fit is cut at the end: to whole sentences if one fits, else to words and an
    ellipsis.
    """
    if whole := whole_sentences(text, width, most):
        return whole
    lines = _lines(text, width)
    kept = lines[:most]
    return [*kept[:-1], cut(f"{kept[-1]} {lines[most]}", width)]


def whole_sentences(text: str, width: int, most: int) -> list[str]:
    """As many whole sentences as fit in `most` lines of `width` cells, from the first one."""
    sentences = _SENTENCE_END.split(text) if text else []
    for count in range(len(sentences), 0, -1):
        lines = _lines(" ".join(sentences[:count]), width)
        if len(lines) <= most:
            return lines
    return []


def cut(text: str, width: int) -> str:
    """The text in one line of `width` cells, with an ellipsis for the words left out."""
    if cell_len(text) <= width:
        return text
    head = chop_cells(text, max(width - 1, 1))[0]
    shorter = head.rpartition(" ")[0]
    # Cut a name without spaces at the end of the line, a sentence before a clause just begun.
    kept = shorter if cell_len(shorter) > width // 2 else head
    before = kept.rpartition(", ")[0]
    kept = before if cell_len(before) > _LAST_CLAUSE * width else kept
    return f"{kept.rstrip(' ,;:')}{_ELLIPSIS}"


def joined_within(parts: Iterable[str], separator: str, width: int) -> str:
    """As many of the parts as fit in `width` cells, in order; a part that does not fit is skipped.

    The first one is always there, cut to the width.
    """
    present = [part for part in parts if part]
    text = cut(present[0], width) if present else ""
    for part in present[1:]:
        if cell_len(f"{text}{separator}{part}") <= width:
            text = f"{text}{separator}{part}"
    return text


def _lines(text: str, width: int) -> list[str]:
    """The words of the text in lines of at most `width` cells; a longer word is split."""
    words = _words(text)
    lines = _filled(words, width)
    if len(lines) > 1 and cell_len(lines[-1]) < _LEAST_END:
        # No narrower than the longest word: it would be split for the sake of the last line.
        narrowest = max(3 * width // 4 + 1, *map(cell_len, words))
        for narrower in range(width - 1, narrowest - 1, -1):
            other = _filled(words, narrower)
            if len(other) > len(lines):
                break
            if cell_len(other[-1]) >= _LEAST_END:
                return other
    return lines


def _filled(words: Iterable[str], width: int) -> list[str]:
    """The words in lines, filled greedily."""
    lines, line = [], ""
    for word in words:
        for piece in _pieces(word, width):
            longer = f"{line} {piece}" if line else piece
            if cell_len(longer) <= width:
                line = longer
            else:
                lines.append(line)
                line = piece
    return [*lines, line] if line or not lines else lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of at most `width` cells, split after slashes where it has them."""
    pieces = []
    while cell_len(word) > width:
        head = chop_cells(word[:width], width)[0] or word[0]
        head = head[: head.rfind("/") + 1] or head
        pieces.append(head)
        word = word[len(head) :]
    return [*pieces, word]


def _words(text: str) -> list[str]:
    """Unbreakable pieces: words, numbers with their units, short parts of a list."""
    parts = text.split(_SEPARATOR)
    last = len(parts) - 1
    words: list[str] = []
    for number, part in enumerate(parts):
        short = len(parts) > 1 and cell_len(part) <= _LONGEST_PART
        words += [" ".join(part.split())] if short else _measured(part.split())
        if number < last and words:
            words[-1] += _SEPARATOR.rstrip()
    return [word for word in words if word]


def _measured(texts: Iterable[str]) -> list[str]:
    """The words, with a number and its unit joined."""
    words: list[str] = []
    for word in texts:
        if words and word.rstrip(".,;:)") in _UNITS and words[-1][-1].isdigit():
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


GAP = 2
_LEAST_TEXT = 22
_READABLE_TEXT = 40
Value = TypeVar("Value")


def table_of(
    spec: TableSpec, values: Iterable[Value], **computed: str | Callable[[Value], Cell]
) -> Table:
    """A row per value: each cell is computed, or an attribute.

    Its path is that of `computed`, null where it leads through None, or the name of its column.
    """
    names = [column.name for column in spec.columns]
    cells = {name: computed.get(name, name) for name in names}
    rows = [{name: _cell(value, cells[name]) for name in names} for value in values]
    return Table.from_rows(spec.columns, rows)


def _cell(value: Any, of: str | Callable[[Any], Cell]) -> Any:
    if callable(of):
        return of(value)
    for name in of.split("."):
        value = None if value is None else getattr(value, name)
    return value


@record
class TerminalColumn:
    """One column as text. `cells` are uncut; `cut` returns them in `width`."""

    heading: str
    is_text: bool
    cells: tuple[str, ...]
    width: int
    prose: bool = False
    shrinks: bool = True

    @property
    def is_absent(self) -> bool:
        """True if no row has a value in the column."""
        return all(cell == units.ABSENT for cell in self.cells)

    def cut(self) -> list[str]:
        """The cells for `width`: names shortened to one line, prose left whole for wrapping."""
        return cells_of(self.cells, self.width, self.prose)


def fitting(
    spec: TableSpec,
    table: Table,
    width: int,
    least_text: int = _LEAST_TEXT,
    *,
    prose_wraps: bool = True,
) -> list[TerminalColumn]:
    """The columns to show in `width` terminal cells: brief ones first, then as many others as fit.

    A number is never cut. Text shrinks to make room for brief columns, down to a width at which
    names still differ; prose only where `prose_wraps`. The first column stays whatever the width; a
    column without any value is left out.
    """
    chosen: list[TerminalColumn] = []
    for column in spec.brief_first:
        texts = tuple(visible(units.quantity(column.name, c)) for c in table.cells(column.name))
        heading = units.label(column.name)
        natural = max(map(cell_len, (heading, *texts)))
        is_text = column.dtype == "text"
        shrinks = is_text and (prose_wraps or not column.prose)
        shown = TerminalColumn(heading, is_text, texts, natural, column.prose, shrinks)
        if chosen and shown.is_absent:
            continue
        least = least_text if column.name in spec.brief_names else _READABLE_TEXT
        needed = sum(_least(c, least) + GAP for c in (*chosen, shown)) - GAP
        if needed <= width or not chosen:
            chosen.append(shown)
    return _grown(chosen, width, least_text)


def _least(column: TerminalColumn, text: int) -> int:
    if not column.shrinks:
        return column.width
    return min(column.width, max(text, cell_len(column.heading)))


def _grown(columns: Sequence[TerminalColumn], width: int, least_text: int) -> list[TerminalColumn]:
    """Share the spare width among the columns that would be cut, least cut first."""
    widths = [min(_least(column, least_text), width) for column in columns]
    spare = max(width - sum(widths) - GAP * (len(widths) - 1), 0)
    lacking = {i: column.width - widths[i] for i, column in enumerate(columns)}
    waiting = sorted((i for i in lacking if lacking[i]), key=lambda i: lacking[i])
    for position, i in enumerate(waiting):
        more = min(lacking[i], spare // (len(waiting) - position))
        widths[i] += more
        spare -= more
    return [replace(c, width=w) for c, w in zip(columns, widths, strict=True)]


# Blocks of a report in text: headings, grids, notes, laid out for a width.
#
# No text is taken as markup, so a name with brackets stays as it is.

SENTENCE = 1_000
_ALL_LINES = 1_000
_LONGEST_RULER = 80
SEVERITY_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "info": "dim"}


def drawn(blocks: Iterable[RenderableType], width: int, color: bool) -> str:
    """The blocks as lines of at most `width` cells, separated by empty lines; styled if `color`."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for block in blocks:
            console.print(block)
            console.print()
    lines = captured.get().rstrip("\n").split("\n")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def grid(*justified: str) -> Grid:
    """A table without rules: a column per argument, right-aligned if the argument is not empty."""
    from rich.table import Table as Grid

    table = Grid(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
    for side in justified:
        table.add_column(justify="right" if side else "left", no_wrap=False, overflow="fold")
    return table


def cells(columns: Sequence[TerminalColumn]) -> Grid:
    """A table with a heading per column, each column in its width."""
    table = grid(*("" if column.is_text else "right" for column in columns))
    for drawn_column, column in zip(table.columns, columns, strict=True):
        drawn_column.width = column.width
    table.add_row(*(Text(column.heading, "dim") for column in columns))
    for row in zip(*(column.cut() for column in columns), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def heading(title: str, name: str = "") -> Text:
    """A title underlined with hyphens, which every terminal and pipe can show."""
    line = f"{title}  {name}" if name else title
    ruler = "-" * min(len(line), _LONGEST_RULER)
    return Text.assemble((title, "bold"), (line[len(title) :], "dim"), (f"\n{ruler}", "dim"))


def note_blocks(lead: str, notes: Iterable[str], most: int = SENTENCE) -> Iterator[RenderableType]:
    """Dim notes without empty lines in between; nothing if there are none."""
    blocks = [note_block(lead, note, "dim", most) for note in notes]
    if blocks:
        yield Group(*blocks)


def note_block(lead: str, text: str, style: str = "", most: int = SENTENCE) -> RenderableType:
    """A sentence behind a bold word that classifies it, such as `Note: `."""
    return Prose(visible(text, most), lead, f"bold {style}")


def sentence(text: str) -> Text:
    """A text made safe to show, cut to the length of a sentence."""
    return Text(visible(text, SENTENCE))


@record
class Prose:
    """A text wrapped by `paragraphs.wrapped`, behind a styled lead."""

    text: str
    lead: str = ""
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = wrapped(f"{self.lead}{self.text}", options.max_width, _ALL_LINES)
        shown = Text("\n".join(lines))
        shown.stylize(self.style, 0, len(self.lead))
        yield shown
