"""The outcome of a gate as text for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import GateReport
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import SENTENCE, drawn, grid, note_block

_STYLES = {"passed": "green", "regressed": "bold red", "undecided": "yellow"}
_FIGURE = 60


def render_text(report: GateReport, *, width: int = 80, color: bool = False) -> str:
    """The headline of the comparison, each rule, and the outcome as the last line of a log."""
    return drawn(_blocks(report), width, color)


def _blocks(report: GateReport) -> Iterator[RenderableType]:
    yield note_block(visible(report.headline, SENTENCE), "")
    rows = grid("", "", "")
    for each in report.decisions:
        demanded = wording.condition_text(each.figure, each.condition)
        rows.add_row(
            Text(wording.mark(each), _STYLES[each.outcome]),
            Text(visible(each.figure, _FIGURE)),
            Text(demanded, "dim"),
        )
    yield rows
    details = wording.failed_decisions(report.decisions)
    if details:
        yield Group(*(note_block("", wording.sentence(each)) for each in details))
    yield Text(wording.summary(report), _STYLES[report.outcome])
