"""A document: what an answer shows, in reading order. Builders fill it; each format lays it out.

It holds names as recorded: a renderer escapes and shortens them.
"""

from __future__ import annotations

from traceview.analyses.base import Skipped, TableSpec
from traceview.ranking import RankedFinding
from traceview.records import record
from traceview.tables import Table


@record
class Sheet:
    """The first rows of a table of an answer, below its name and meaning if `titled`.

    `single` names the columns that have one value in the whole recording.
    """

    spec: TableSpec
    table: Table
    single: frozenset[str] = frozenset()
    titled: bool = True


@record
class GridRow:
    """The cells of one row; `strong` rows sum others."""

    cells: tuple[str, ...]
    strong: bool = False


@record
class Grid:
    """A table laid out by its builder: columns of names, then of numbers, then of sentences.

    Cells of numbers are the product's own texts, which need no escapes.
    """

    names: tuple[str, ...]
    rows: tuple[GridRow, ...]
    numbers: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()


@record
class Entries:
    """Sentences, each behind a figure or, unless `figures`, behind the name of its subject."""

    entries: tuple[tuple[str, str], ...]
    figures: bool = False


@record
class Section:
    """Parts below a title. `aside` sections are opened by those who want to know more."""

    title: str
    parts: tuple[Sheet | Grid | Entries | Skipped, ...]
    aside: bool = True


@record
class ScoreTile:
    """One figure: name, value, and a detail such as its whole. `field` is its Scoreboard field."""

    field: str
    name: str
    value: str
    detail: str = ""


@record
class Document:
    """An answer. An absent part is empty; `nothing_found` replaces an empty list of findings.

    `title` names the only subject; where there are two, the first of the `facts` does. `warnings`
    are pairs of what they warn of and a text. `plan` says what the findings win one after another.
    """

    title: str = ""
    facts: tuple[str, ...] = ()
    headline: str = ""
    tiles: tuple[ScoreTile, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    plan: str = ""
    findings: tuple[RankedFinding, ...] = ()
    nothing_found: str = ""
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()
