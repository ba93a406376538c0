"""The explanation of an answer as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.tables import TableSpec
from traceview.render.base.text import drawn, grid, heading
from traceview.traces.explanation import Explanation


def render_explanation(explanation: Explanation, *, width: int = 80, color: bool = False) -> str:
    """Question, method, needed tables, and every column with its meaning."""
    return drawn(_blocks(explanation), width, color)


def _blocks(explanation: Explanation) -> Iterator[RenderableType]:
    title = heading(explanation.title, explanation.name)
    yield Group(title, Text(explanation.question, "italic"))
    # Undo the wrapping of the docstring, so that each paragraph is wrapped to the terminal.
    for paragraph in explanation.method.split("\n\n"):
        yield Text(" ".join(paragraph.split()))
    yield Text(f"Computed in {explanation.source}", "dim")
    if explanation.needs:
        rows = grid("", "")
        for need in explanation.needs:
            how = Text(need.meaning).append(f"\nrecorded by: {need.how_to_record}", "dim")
            rows.add_row(Text(need.table, "bold"), how)
        yield Group(Text("Needs", "bold"), rows)
    for spec in explanation.tables:
        yield _columns(spec)


def _columns(spec: TableSpec) -> RenderableType:
    rows = grid("", "")
    for column in spec.columns:
        absent = ", or absent" if column.nullable else ""
        kind = units.of_column(column.name, column.dtype)
        rows.add_row(Text(column.name), Text(column.meaning).append(f" ({kind}{absent})", "dim"))
    return Group(Text.assemble((spec.name, "bold"), (f": {spec.meaning}", "dim")), rows)
