"""A table of a report in a terminal: numbers in columns, sentences on lines of their own.

Uninformative columns are left out: the only device or process of the recording, all zeros, all
absent. JSON has every column.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.records import record
from traceview.render.base.columns import GAP, TerminalColumn, fitting
from traceview.render.base.paragraphs import wrapped
from traceview.render.base.safe_text import visible
from traceview.report import TraceFacts
from traceview.tables import Column, Table

_INDENT = 4
_FULL_NAME, _MOST_LINES = 4_000, 60


@record
class TextOptions:
    """The most rows of a table, and whether kernel names are written in full."""

    rows: int = 10
    full_names: bool = False


def single_ids(trace: TraceFacts) -> frozenset[str]:
    """Names of the id columns that have one value in the whole recording."""
    hosts = {gpu.host_id for gpu in trace.gpus} | {each.host_id for each in trace.processes}
    few = {
        "device_id": len(trace.gpus),
        "process_id": len(trace.processes),
        "host_id": len(hosts),
    }
    return frozenset(name for name, count in few.items() if count <= 1)


def table_lines(
    spec: TableSpec, table: Table, width: int, single: Set[str], options: TextOptions
) -> Iterator[Text]:
    """The first rows of a table as lines of at most `width` cells, below a line of headings."""
    head = table.take(np.arange(min(len(table), options.rows)))
    telling = replace(spec, columns=tuple(telling_columns(spec, table, single)))
    inline, below = _split(telling, head, width, options)
    columns = fitting(inline, head, width, prose_wraps=False)
    yield _line([column.heading for column in columns], columns, "dim")
    for row, cells in enumerate(zip(*(column.cut() for column in columns), strict=True)):
        yield _line(cells, columns)
        for column in below:
            value = head.cells(column.name)[row]
            if value is not None and value != "":
                yield from _own_lines(str(value), width)


def telling_columns(spec: TableSpec, table: Table, single: Set[str]) -> Iterator[Column]:
    """The informative columns; the first brief column stays unless it is a single id."""
    for position, column in enumerate(spec.columns):
        silent = column.name in single or _is_zero(table, column)
        # Without any other column, ids are all that the table shows.
        first = spec.brief[0] if spec.brief else column.name
        keeps = column.name == first and column.name not in single
        if not silent or keeps or (len(spec.columns) == 1 and position == 0):
            yield column


def _is_zero(table: Table, column: Column) -> bool:
    if column.dtype in ("text", "bytes", "bool") or units.is_moment(column.name):
        return False
    return not np.any(np.nan_to_num(table[column.name].astype(float))[~table.is_null(column.name)])


def _split(
    spec: TableSpec, head: Table, width: int, options: TextOptions
) -> tuple[TableSpec, list[Column]]:
    """The columns to show side by side, and those whose cells get their own lines."""
    brief = [column for column in spec.columns if column.name in spec.brief]
    natural = sum(_natural_width(column, head) + GAP for column in brief) - GAP
    below = [column for column in brief if column.prose and natural > width]
    beside = [column for column in spec.columns if not column.prose or natural <= width]
    if options.full_names:
        below += [column for column in spec.columns if column.name == "name"]
        beside = [column for column in beside if column.name != "name" or len(beside) == 1]
    if not beside:
        beside, below = below[:1], below[1:]
    return replace(spec, columns=tuple(beside)), below


def _natural_width(column: Column, head: Table) -> int:
    texts = (visible(units.quantity(column.name, value)) for value in head.cells(column.name))
    return max(map(cell_len, (units.label(column.name), *texts)))


def _line(
    cells: list[str] | tuple[str, ...], columns: list[TerminalColumn], style: str = ""
) -> Text:
    parts = []
    for cell, column in zip(cells, columns, strict=True):
        pad = " " * max(column.width - cell_len(cell), 0)
        parts.append(f"{cell}{pad}" if column.is_text else f"{pad}{cell}")
    return Text((" " * GAP).join(parts).rstrip(), style)


def _own_lines(value: str, width: int) -> Iterator[Text]:
    for line in wrapped(visible(value, _FULL_NAME), width - _INDENT, _MOST_LINES):
        yield Text(f"{'':{_INDENT}}{line}", "dim")
