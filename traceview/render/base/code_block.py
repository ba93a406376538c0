"""Lines of code, as records for the page templates."""

from __future__ import annotations

from traceview.records import record


@record
class CodeLink:
    """A link to the page element with the id `target`; plain text if that is empty."""

    text: str
    target: str


@record
class CodeLine:
    """A line of code. `mark` is a CSS class shared by all code from one source line."""

    text: str
    margin: str
    narrow: bool
    id: str | None = None
    mark: str | None = None
    links: tuple[CodeLink, ...] = ()
    number: int | None = None
    after_gap: bool = False


@record
class CodeBlock:
    """A source file or listing, its lines called `unit`; `missing` is the reason if it is empty."""

    title: str
    lines: tuple[CodeLine, ...] = ()
    missing: str = ""
    left_out: int = 0
    unit: str = "instructions"
