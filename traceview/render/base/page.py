"""Pages from the templates in `render/templates`, and the tables in them.

The templates escape every text, except SVG drawn in Python.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from traceview.base import units
from traceview.base.errors import TraceviewError
from traceview.base.outputs import write_pieces
from traceview.base.records import record
from traceview.base.tables import Cell, Column, Table, TableSpec
from traceview.base.version import __version__
from traceview.render.base.code import coded, colored, colors_css
from traceview.render.base.safe_text import all_visible, cells_of, visible
from traceview.render.document import limited

MOST_ROWS = 400
"""Rows of a table on the page, unless all are requested; JSON has more."""

_SHORT, WHOLE = 56, 4_000
"""Most characters of a name in a cell, and in its tooltip with the whole name."""
_MOST_COLUMNS = 10


@record
class Heading:
    """The heading of a column, with its name in JSON and its meaning.

    `is_off` columns are hidden until the reader switches them on. A column that `adds` has a
    meaningful sum, without double counting.
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
        """The start of the `<td>` tag of the column's cells."""
        kind = "prose" if self.is_prose else "text" if self.is_text else ""
        classes = " ".join(filter(None, (kind, "off" if self.is_off else "")))
        return f'<td class="{classes}"' if classes else "<td"


@record
class TableView:
    """A table as text: `body` is the HTML of its `shown` rows.

    `left_out` counts the other rows, and `sums` are their sums. `key` is the id of the table's
    element, empty outside of a page.
    """

    name: str
    meaning: str
    headings: tuple[Heading, ...]
    body: Markup
    shown: int
    left_out: int
    kept: str
    sums: tuple[tuple[str, str], ...]
    detail: bool
    key: str = ""


def table_view(
    spec: TableSpec,
    table: Table,
    most: int | None = MOST_ROWS,
    key: str = "",
    marked: Sequence[int] = (),
    links: Sequence[str | None] = (),
    moments: Sequence[str | None] = (),
) -> TableView:
    """A table with its brief columns first and at most `most` rows, all if that is None.

    `marked` rows are always shown and have ids. `links` has, for each row, the id of the page
    element to which its first cell links, `moments` the place in the timeline that a sign in that
    cell leads to.
    """
    part = limited(spec, table, most, marked)
    head = part.table
    columns = [c for c in spec.brief_first if not _is_absent(c, head)]
    off = _columns_off(spec, columns, head)
    headings = tuple(_heading(c, c.name in off, c.name in spec.adds.split()) for c in columns)
    cells = [_cells(column, head) for column in columns]
    for given, linked in ((links, _linked), (moments, _with_moments)):
        if given and cells:
            rows = range(len(table)) if part.rows is None else part.rows.tolist()
            cells[0] = linked(cells[0], [given[row] for row in rows])
    ids = {part.place(row): row_id(key, row) for row in marked}
    return TableView(
        name=units.stem(spec.name),
        meaning=spec.meaning,
        headings=headings,
        body=_body([heading.cell_tag for heading in headings], cells, ids),
        shown=len(head) if columns else 0,
        left_out=part.left_out,
        kept=part.kept,
        sums=tuple((units.stem(name), units.quantity(name, v)) for name, v in part.sums.items()),
        detail=spec.detail,
        key=key,
    )


def row_id(key: str, row: int) -> str:
    """The id of the row element in the table with the id `key`."""
    return f"{key}-row-{row}"


def _is_absent(column: Column, table: Table) -> bool:
    """True if no row has a value in the column, so that it is left out."""
    return column.nullable and len(table) > 0 and bool(table.is_null(column.name).all())


def _columns_off(spec: TableSpec, columns: Sequence[Column], table: Table) -> set[str]:
    """Names of columns to hide: constant ones, and names that another column has in short.

    Columns beyond _MOST_COLUMNS are hidden too. Of brief columns, only ids can be hidden.
    """
    names = {column.name for column in columns}
    shortened = {"name", "short_name"} if "label" in names else {"name"}
    shortened = shortened if names & {"label", "short_name"} else set()
    ids = {name for name in names if name.endswith("_id") and len(names) > 1}
    others = [c.name for c in columns if c.name not in spec.brief_names or c.name in ids]
    off = {name for name in others if name in shortened or _is_constant(table, name)}
    on = [name for name in others if name not in off and name not in spec.brief_names]
    return off | set(on[max(_MOST_COLUMNS - len(spec.brief_names), 0) :])


def _is_constant(table: Table, name: str) -> bool:
    if len(table) < 2 and not name.endswith("_id"):
        return False
    values = table.texts(name).codes if table.column(name).dtype == "text" else table[name]
    return bool((values == values[:1]).all())


def _heading(column: Column, is_off: bool, adds: bool) -> Heading:
    label, is_text = units.label(column.name), column.dtype == "text"
    return Heading(column.name, label, column.meaning, is_text, column.prose, is_off, adds)


def _body(tags: Sequence[str], columns: Sequence[Sequence[str]], ids: Mapping[int, str]) -> Markup:
    """The rows as HTML, built here because a template takes five times as long per cell."""
    row = "".join(f"{tag.replace('%', '%%')}%s</td>" for tag in tags)
    rows = [row % cells for cells in zip(*columns, strict=True)]
    starts = ["<tr>"] * len(rows)
    for place, id_ in ids.items():
        starts[place] = f'<tr id="{escape(id_)}" class="evident">'
    lines = (f"{start}{cells}</tr>" for start, cells in zip(starts, rows, strict=True))
    return Markup("\n    ".join(lines))  # noqa: S704 - escaped where cells are made


def _cells(column: Column, table: Table) -> list[str]:
    """The HTML of a column's cells, from the end of the tag on: `>gemm`, ` data-v="3000">3,000`.

    Numbers that look otherwise have their raw value, empty if null; shortened names have the whole
    name in a title.
    Equal values are formatted once.
    """
    values = table.cells(column.name)
    different = list(dict.fromkeys(values))
    shown = list(map(units.formatter(column.name), different))
    written = _texts(shown, column) if column.dtype == "text" else _numbers(shown, different)
    cell_of = dict(zip(different, written, strict=True))
    return [cell_of[value] for value in values]


def _texts(texts: Sequence[str], column: Column) -> list[str]:
    wholes = all_visible(texts, WHOLE)
    shorts = cells_of(wholes, _SHORT, column.prose)
    return [
        f">{short}" if short == whole else f'><span class="elided" title="{whole}">{short}</span>'
        for whole, short in zip(_escaped(wholes), _escaped(shorts), strict=True)
    ]


def _numbers(texts: Sequence[str], values: Sequence[Cell]) -> list[str]:
    raw = ["" if value is None else str(value) for value in values]
    return [
        f">{text}" if text == number else f' data-v="{number}">{text}'
        for number, text in zip(_escaped(raw), _escaped(texts), strict=True)
    ]


def _linked(cells: Sequence[str], links: Sequence[str | None]) -> list[str]:
    """Text cells with links to elements of the page, except where the text is shortened."""
    return [
        f'><a href="#{escape(link)}">{cell[1:]}</a>' if link and not cell.startswith("><") else cell
        for cell, link in zip(cells, links, strict=True)
    ]


def _with_moments(cells: Sequence[str], moments: Sequence[str | None]) -> list[str]:
    return [
        f'{cell} <a class="moment" href="#{escape(moment)}" title="Show in the timeline">⤢</a>'
        if moment
        else cell
        for cell, moment in zip(cells, moments, strict=True)
    ]


def _escaped(texts: Sequence[str]) -> list[str]:
    """Escape texts without line breaks for HTML, all in one call."""
    return str(escape("\n".join(texts))).split("\n") if texts else []


_TEMPLATES = Path(__file__).parent.parent / "templates"
_COMPILED = _TEMPLATES / "__pycache__"
STYLES = ("report.css", "charts.css", "tables.css", "code.css", "timeline.css")
# An aside is in brackets, or a line's code; other code stays whole. A gist ends before the next
# sentence, or its reason.
_GIST = re.compile(
    r"(?P<aside>, `[^`]*`,| \((?:[^()`]|\([^()`]*\))*\))|`[^`]*`"
    r"|(?P<end>(?<=[\w)'`%]\.) (?!If so)(?=[A-Z0-9`])"
    r"|, (?=so that|not counting|(?:likely )?because)|[;:] )"
)
# Spaces that must not break: before a unit or a separating dot, and in `GPU busy 12 %`.
_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=%|(?:ns|µs|ms|s|[kMGT]?B)\b)| (?=·)|(?<=GPU) (?=busy)|(?<=busy) (?=\d)"
)
SCRIPT, TIMELINE = "report.js", "timeline.js"
"""Bundles of the modules in `render/script`, written by `make script`."""


@record
class Style:
    """Style files in the templates folder, and `more` rules, which contain no user text.

    `within` is a CSS selector that limits all rules to the elements it matches.
    """

    files: tuple[str, ...]
    more: str = ""
    within: str = ""

    def text(self) -> str:
        files = ((_TEMPLATES / name).read_text("utf-8") for name in self.files)
        rules = "".join((colors_css(), *files, self.more))
        return _nested(rules, self.within) if self.within else rules


def rendered(template: str, style: Style, /, *bundles: str, **content: object) -> str:
    """Render a template with its content, the style, and the scripts `bundles`, or SCRIPT."""
    return "".join(rendered_pieces(template, style, *bundles, **content))


def rendered_pieces(
    template: str, style: Style, /, *bundles: str, **content: object
) -> Iterator[str]:
    """The page of `rendered` in pieces, so that a long ASCII piece encodes as a mere copy."""
    rules = Markup(style.text())  # noqa: S704 - our own files
    texts = ((_TEMPLATES / name).read_text("utf-8") for name in bundles or (SCRIPT,))
    # One element: while the first script runs, the page as it was has all of them.
    script = Markup("".join(texts))  # noqa: S704 - our own files
    # The content security policy: only this style and this script are allowed.
    allowed = f"script-src {_source_hash(script)}; style-src {_source_hash(rules)}"
    return (
        _environment()
        .get_template(template)
        .generate(
            style=rules,
            script=script,
            policy=f"default-src 'none'; {allowed}; img-src data:",
            **content,
        )
    )


def compile_templates(*templates: str) -> None:
    """Load templates ahead of their use."""
    for template in templates:
        _environment().get_template(template)


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _nested(style: str, selector: str) -> str:
    """The style with its rules nested in a selector, which stands in for `:root` and `body`."""
    rules = re.sub(r"(?m)^( *)(?::root|body)(?= \{)", r"\1&", style)
    return f"{selector} {{\n{rules}}}"


class _CompiledTemplates(BytecodeCache):
    """Cache compiled templates in `__pycache__` beside their source, as Python does modules."""

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            bucket.bytecode_from_string(_compiled(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError, TraceviewError):
            _COMPILED.mkdir(exist_ok=True)
            write_pieces(_compiled(bucket), (bucket.bytecode_to_string(),))


def _compiled(bucket: Bucket) -> Path:
    return _COMPILED / f"{bucket.key}.{__version__}.jinja"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=_CompiledTemplates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = lambda text: visible(text, WHOLE)
    environment.filters["count"] = units.count
    environment.filters["coded"] = lambda text: coded(visible(text, WHOLE))
    environment.filters["colored"] = colored
    environment.filters["gist"] = gist
    environment.filters["unbroken"] = lambda text: _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    return environment


def gist(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, and whether each is beyond the gist: its asides and what follows it.

    The gist is the first sentence, up to its purpose, reason or exceptions.
    """
    start = 0
    for part in _GIST.finditer(text):
        if part.lastgroup:
            yield text[start : part.start()], False
            start = part.start()
        if part.lastgroup == "aside":
            yield part[0], True
            start = part.end()
        if part.lastgroup == "end":
            break
    else:
        yield text[start:], False
        return
    yield text[start:], True


def key(name: str) -> str:
    """Turn a name into the id of an element."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())
