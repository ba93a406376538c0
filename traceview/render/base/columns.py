"""The columns of a table that fit into a terminal, their widths, and their cells as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rich.cells import cell_len

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.records import record
from traceview.render.base.safe_text import cells_of, visible
from traceview.tables import Cell, Column, Table

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

    def with_width(self, width: int) -> TerminalColumn:
        return replace(self, width=width)

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
    for column in _in_order(spec):
        shown = _text_column(column, table, prose_wraps)
        if chosen and shown.is_absent:
            continue
        least = least_text if column.name in spec.brief else _READABLE_TEXT
        needed = sum(_least(c, least) + GAP for c in (*chosen, shown)) - GAP
        if needed <= width or not chosen:
            chosen.append(shown)
    return _grown(chosen, width, least_text)


def _in_order(spec: TableSpec) -> list[Column]:
    brief = [column for name in spec.brief for column in spec.columns if column.name == name]
    return brief + [column for column in spec.columns if column.name not in spec.brief]


def _text_column(column: Column, table: Table, prose_wraps: bool) -> TerminalColumn:
    texts = tuple(visible(units.quantity(column.name, c)) for c in table.cells(column.name))
    heading = units.label(column.name)
    natural = max(map(cell_len, (heading, *texts)))
    is_text = column.dtype == "text"
    shrinks = is_text and (prose_wraps or not column.prose)
    return TerminalColumn(heading, is_text, texts, natural, column.prose, shrinks)


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
    return [c.with_width(w) for c, w in zip(columns, widths, strict=True)]
