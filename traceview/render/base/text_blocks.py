"""Blocks of a report in text: headings, grids, notes, laid out for a width.

No text is taken as markup, so a name with brackets stays as it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from traceview.records import record
from traceview.render.base.columns import GAP, TerminalColumn
from traceview.render.base.paragraphs import wrapped
from traceview.render.base.safe_text import visible

if TYPE_CHECKING:
    from rich.table import Table as Grid

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
