"""Pages from the templates in `render/templates`, and tables as the templates take them.

The templates escape every text; SVG drawn in Python is the only markup inserted as it is.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.render.base.colors import colors_css
from traceview.render.base.row_limit import limited
from traceview.render.base.safe_text import cells_of, visible
from traceview.tables import Column, Table

MOST_ROWS = 1_000
"""Rows of a table on the page unless all are requested. JSON has more."""

_TEMPLATES = Path(__file__).parent.parent / "templates"
STYLES = ("report.css", "charts.css", "tables.css", "timeline.css")
_SCRIPT = "report.js"
"""The modules of `render/script`, bundled by `make script`."""
_SHORT = 64
_WHOLE = 4_000


@dataclass(frozen=True)
class CellView:
    """A cell as text. `whole` is the full name where `text` leaves out its middle.

    `link` is the id of an element of the page.
    """

    text: str
    whole: str | None = None
    link: str | None = None


@dataclass(frozen=True)
class Heading:
    """The heading of a column, with its name in JSON and its meaning."""

    name: str
    label: str
    meaning: str
    is_text: bool


@dataclass(frozen=True)
class TableView:
    """A table as text. `left_out` counts the rows that it does not show; `sums` are theirs."""

    name: str
    meaning: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[CellView, ...], ...]
    left_out: int
    kept: str
    sums: tuple[tuple[str, str], ...]
    detail: bool


@dataclass(frozen=True)
class Style:
    """Style files beside the templates, and `more` rules, which hold nothing of the user's.

    `within` is a CSS selector: the rules then hold inside such elements alone.
    """

    files: tuple[str, ...]
    more: str = ""
    within: str = ""

    def text(self) -> str:
        files = ((_TEMPLATES / name).read_text("utf-8") for name in self.files)
        rules = "".join((colors_css(), *files, self.more))
        return _nested(rules, self.within) if self.within else rules


def rendered(template: str, style: Style, **content: object) -> str:
    """The page that a template makes of its content."""
    rules = Markup(style.text())  # noqa: S704 - our own files
    script = Markup((_TEMPLATES / _SCRIPT).read_text("utf-8"))  # noqa: S704 - our own file
    return (
        _environment()
        .get_template(template)
        .render(style=rules, script=script, policy=_policy(rules, script), **content)
    )


def _policy(style: str, script: str) -> str:
    """The content security policy: this style and this script, and nothing from anywhere else."""
    allowed = f"script-src {_source_hash(script)}; style-src {_source_hash(style)}"
    return f"default-src 'none'; {allowed}; img-src data:"


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _nested(style: str, selector: str) -> str:
    """The style with its rules nested in a selector, which takes the place of the whole page."""
    rules = re.sub(r"(?m)^( *)(?::root|body)(?= \{)", r"\1&", style)
    return f"{selector} {{\n{rules}}}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = lambda text: visible(text, _WHOLE)
    environment.filters["count"] = units.count
    return environment


def key(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())


def table_view(spec: TableSpec, table: Table, most: int | None = MOST_ROWS) -> TableView:
    """A table with its brief columns first and at most so many rows; all if `most` is None."""
    part = limited(spec, table, most)
    head = part.table
    columns = [c for c in _in_reading_order(spec) if not _is_absent(c, head)]
    cells = [_cells(column, head) for column in columns]
    return TableView(
        name=units.stem(spec.name),
        meaning=spec.meaning,
        headings=tuple(_heading(column) for column in columns),
        rows=tuple(zip(*cells, strict=True)),
        left_out=part.left_out,
        kept=part.kept,
        sums=tuple((units.stem(name), units.quantity(name, v)) for name, v in part.sums.items()),
        detail=spec.detail,
    )


def _is_absent(column: Column, table: Table) -> bool:
    """True if no row has a value in the column, which is then left out."""
    return column.nullable and len(table) > 0 and bool(table.is_null(column.name).all())


def _in_reading_order(spec: TableSpec) -> list[Column]:
    """The columns, brief ones first: on a small screen the others are a scroll away."""
    brief = [column for name in spec.brief for column in spec.columns if column.name == name]
    return brief + [column for column in spec.columns if column.name not in spec.brief]


def _heading(column: Column) -> Heading:
    return Heading(column.name, units.label(column.name), column.meaning, column.dtype == "text")


def _cells(column: Column, table: Table) -> list[CellView]:
    wholes = [visible(units.quantity(column.name, v), _WHOLE) for v in table.cells(column.name)]
    texts = cells_of(wholes, _SHORT, column.prose)
    return [
        CellView(text, None if text == whole else whole)
        for text, whole in zip(texts, wholes, strict=True)
    ]
