"""What reports in text are made of: lines laid out for a width, headings, grids, notes.

Nothing here is markup: every text is laid out as it stands, so a name with brackets stays one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from traceview.render.base.columns import GAP, Shown
from traceview.render.base.safe_text import visible

SENTENCE = 1_000
SEVERITY_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "info": "dim"}


def drawn(blocks: Iterable[RenderableType], width: int, color: bool) -> str:
    """The blocks in lines of at most `width` cells, an empty line between; with `color`, styles."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
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
    """A table without lines; a column for each argument, to the right if that says something."""
    made = Grid(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
    for side in justified:
        made.add_column(justify="right" if side else "left", no_wrap=False, overflow="fold")
    return made


def cells(columns: Sequence[Shown]) -> Grid:
    """Columns of a table with their headings, each in its width."""
    made = grid(*("" if column.is_text else "right" for column in columns))
    for place, column in zip(made.columns, columns, strict=True):
        place.width = column.width
    made.add_row(*(Text(column.heading, "dim") for column in columns))
    for row in zip(*(column.cut() for column in columns), strict=True):
        made.add_row(*(Text(cell) for cell in row))
    return made


def heading(title: str, name: str = "") -> Text:
    """A title with a line of hyphens under it, which every terminal and pipe can show."""
    said = f"{title}  {name}" if name else title
    return Text.assemble(
        (title, "bold"), (said[len(title) :], "dim"), ("\n" + "-" * len(said), "dim")
    )


def noted(lead: str, text: str, style: str = "") -> RenderableType:
    """A sentence behind a word in bold that says what it is."""
    return Padding(Text.assemble((lead, f"bold {style}"), visible(text, SENTENCE)), 0)


def sentence(text: str) -> Text:
    """A text of the length of a sentence, made fit to be shown."""
    return Text(visible(text, SENTENCE))
