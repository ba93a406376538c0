"""Tables as the templates of pages take them: cells as text, with the raw number beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from markupsafe import Markup, escape

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.render.base.row_limit import limited
from traceview.render.base.safe_text import cells_of, visible
from traceview.tables import Cell, Column, Table

MOST_ROWS = 1_000
"""Rows of a table on the page unless all are requested. JSON has more."""

_SHORT, WHOLE = 56, 4_000
"""Characters of a name in a cell, and of the same name where it is shown whole."""
_MOST_COLUMNS = 10


@dataclass(frozen=True)
class CellView:
    """A cell as text. `whole` is the full name where `text` leaves out its middle.

    `value` is the raw number, empty where it is absent; None in a column of text. `link` is the id
    of an element of the page.
    """

    text: str
    whole: str | None = None
    value: str | None = None
    link: str | None = None

    @cached_property
    def html(self) -> str:
        """The cell from the end of its tag on: `>gemm`, ` data-v="3">3`."""
        number = "" if self.value is None else f' data-v="{self.value}"'
        if self.whole is not None:
            name = f'<span class="elided" title="{escape(self.whole)}">{escape(self.text)}</span>'
        elif self.link:
            name = f'<a href="#{escape(self.link)}">{escape(self.text)}</a>'
        else:
            name = escape(self.text)
        return f"{number}>{name}"


@dataclass(frozen=True)
class Heading:
    """The heading of a column, with its name in JSON and its meaning.

    `is_off` columns are there for the reader to switch on. The sum of one that `adds` counts
    nothing twice.
    """

    name: str
    label: str
    meaning: str
    is_text: bool
    is_prose: bool = False
    is_off: bool = False
    adds: bool = False

    @property
    def cell_tag(self) -> str:
        """The start of the tag of its cells."""
        kind = "prose" if self.is_prose else "text" if self.is_text else ""
        classes = " ".join(filter(None, (kind, "off" if self.is_off else "")))
        return f'<td class="{classes}"' if classes else "<td"


@dataclass(frozen=True)
class TableView:
    """A table as text. `left_out` counts the rows that it does not show; `sums` are theirs.

    `ids` are the ids of rows that findings lead to, by place in `rows`. `key` is the table's own
    id, empty off the page.
    """

    name: str
    meaning: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[CellView, ...], ...]
    left_out: int
    kept: str
    sums: tuple[tuple[str, str], ...]
    detail: bool
    key: str = ""
    ids: Mapping[int, str] = field(default_factory=dict)

    def html_rows(self) -> Iterator[Markup]:
        """The rows as HTML. A template would take five times as long, cell by cell."""
        tags = [heading.cell_tag for heading in self.headings]
        for place, row in enumerate(self.rows):
            id_ = self.ids.get(place)
            start = f'<tr id="{escape(id_)}" class="evident">' if id_ else "<tr>"
            cells = "</td>".join(f"{tag}{cell.html}" for tag, cell in zip(tags, row, strict=True))
            yield Markup(f"{start}{cells}</td></tr>")  # noqa: S704 - escaped above


def table_view(
    spec: TableSpec,
    table: Table,
    most: int | None = MOST_ROWS,
    key: str = "",
    marked: Sequence[int] = (),
) -> TableView:
    """A table with its brief columns first and at most so many rows; all if `most` is None.

    Rows that are `marked` are shown in any case and have ids.
    """
    part = limited(spec, table, most, marked)
    head = part.table
    columns = [c for c in _in_reading_order(spec) if not _is_absent(c, head)]
    cells = [_cells(column, head) for column in columns]
    off = _columns_off(spec, columns, head)
    return TableView(
        name=units.stem(spec.name),
        meaning=spec.meaning,
        headings=tuple(_heading(c, c.name in off, c.name in spec.adds) for c in columns),
        rows=tuple(zip(*cells, strict=True)),
        left_out=part.left_out,
        kept=part.kept,
        sums=tuple((units.stem(name), units.quantity(name, v)) for name, v in part.sums.items()),
        detail=spec.detail,
        key=key,
        ids={part.place(row): row_id(key, row) for row in marked},
    )


def row_id(key: str, row: int) -> str:
    """The id of a row of the table with that key."""
    return f"{key}-row-{row}"


def _is_absent(column: Column, table: Table) -> bool:
    """True if no row has a value in the column, which is then left out."""
    return column.nullable and len(table) > 0 and bool(table.is_null(column.name).all())


def _in_reading_order(spec: TableSpec) -> list[Column]:
    """The columns, brief ones first: on a small screen the others are a scroll away."""
    brief = [column for name in spec.brief for column in spec.columns if column.name == name]
    return brief + [column for column in spec.columns if column.name not in spec.brief]


def _columns_off(spec: TableSpec, columns: Sequence[Column], table: Table) -> set[str]:
    """Columns that say nothing here: the same in all rows, or names that another column shortens.

    Beyond _MOST_COLUMNS the rest is off, too. Of brief columns only ids can be.
    """
    names = {column.name for column in columns}
    shortened = {"name", "short_name"} if "label" in names else {"name"}
    shortened = shortened if names & {"label", "short_name"} else set()
    ids = {name for name in names if name.endswith("_id") and len(names) > 1}
    others = [c.name for c in columns if c.name not in spec.brief or c.name in ids]
    off = {name for name in others if name in shortened or _is_constant(table, name)}
    on = [name for name in others if name not in off and name not in spec.brief]
    return off | set(on[max(_MOST_COLUMNS - len(spec.brief), 0) :])


def _is_constant(table: Table, name: str) -> bool:
    if len(table) < 2 and not name.endswith("_id"):
        return False
    values = table.texts(name).codes if table.column(name).dtype == "text" else table[name]
    return bool((values == values[:1]).all())


def _heading(column: Column, is_off: bool, adds: bool) -> Heading:
    label, is_text = units.label(column.name), column.dtype == "text"
    return Heading(column.name, label, column.meaning, is_text, column.prose, is_off, adds)


def _cells(column: Column, table: Table) -> list[CellView]:
    """The cells of a column; equal values share one."""
    values = table.cells(column.name)
    different = list(dict.fromkeys(values))
    wholes = [visible(units.quantity(column.name, v), WHOLE) for v in different]
    if column.dtype != "text":
        views = [CellView(t, value=_raw(v)) for t, v in zip(wholes, different, strict=True)]
    else:
        texts = cells_of(wholes, _SHORT, column.prose)
        views = [CellView(t, None if t == w else w) for t, w in zip(texts, wholes, strict=True)]
    view_of = dict(zip(different, views, strict=True))
    return [view_of[value] for value in values]


def _raw(value: Cell) -> str:
    return "" if value is None else str(value)
