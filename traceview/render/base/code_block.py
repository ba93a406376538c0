"""Lines of code as the templates of pages take them."""

from __future__ import annotations

from traceview.records import record


@record
class CodeLink:
    """`target` is the id of an element of the page; empty if there is none."""

    text: str
    target: str


@record
class CodeLine:
    """A line of code. `mark` is a class that it shares with all that comes from the same line."""

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
    """One source file or listing, whose lines are `unit`; `missing` says why there are none."""

    title: str
    lines: tuple[CodeLine, ...] = ()
    missing: str = ""
    left_out: int = 0
    unit: str = "instructions"
