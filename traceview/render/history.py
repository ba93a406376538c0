"""Runs over time as text, page, JSON and document."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from traceview.base import units
from traceview.render.base.json_text import JsonKey, JsonShape, items_of
from traceview.render.base.page import STYLES, Style, rendered, table_view
from traceview.render.base.safe_text import visible
from traceview.render.base.text import drawn, note_block
from traceview.render.charts.layout import layout
from traceview.render.charts.svg import draw
from traceview.render.document import Document, Section, Sheet
from traceview.render.report.text import TextOptions, table_block
from traceview.traces.comparison.history import CHARTS, RUNS, History, UnreadRun

_REPR = 90
HISTORY = JsonShape(
    History,
    "folder",
    JsonKey("runs", list[dict[str, object]], lambda history, _: [*history.runs.rows()]),
    items_of("failed", JsonShape(UnreadRun, "*")),
)


def history_document(history: History) -> Document:
    """The table of runs, and what could not be read."""
    return Document(
        title=history.folder,
        headline=headline(history),
        warnings=tuple((each.name, each.reason) for each in history.failed),
        sections=(Section("Runs", (Sheet(RUNS, history.runs, titled=False),), aside=False),),
    )


def headline(history: History) -> str:
    """`7 runs: 24.1 → 18.3 ms per step, 24.1 % less`, by the last run and the first like it."""
    of_step = bool(history.runs["steps"][-1])
    alike = history.with_steps(of_step)["step_ns"]
    first, last = int(alike[0]), int(alike[-1])
    runs, what = units.counted(len(history.runs), "run"), "step" if of_step else "run"
    if len(alike) < 2 or not first:
        return f"{runs}: {units.duration(last)} per {what}"
    change = 100.0 * (last - first) / first
    told = f"{units.percent(abs(change))} {'more' if change > 0 else 'less'}"
    return f"{runs}: {units.duration(first)} → {units.duration(last)} per {what}, {told}"


def render_text(history: History, *, width: int = 80, color: bool = False) -> str:
    """The runs in lines of at most `width` cells; with ANSI styles if `color`."""
    return drawn(_blocks(history, width), width, color)


def described(history: History) -> str:
    """The `repr`: the text that the command prints."""
    return f"<History {render_text(history, width=_REPR).rstrip()}>"


def _blocks(history: History, width: int) -> Iterator[RenderableType]:
    yield Text(visible(headline(history)), "bold")
    yield table_block(RUNS, history.runs, width, frozenset(), TextOptions(rows=len(history.runs)))
    for each in history.failed:
        yield note_block("Not read: ", f"{each.name}: {each.reason}")


def render_html(history: History, version: str) -> str:
    """The page: a bar per run, of steps and of whole runs apart, and the table."""
    charts = [(each, layout(each, history.with_steps(kind))) for kind, each in CHARTS.items()]
    return rendered(
        "history.html",
        Style(STYLES),
        title=history.folder,
        headline=headline(history),
        charts=[(each.title, draw(drawing, each.title)) for each, drawing in charts if drawing],
        table=table_view(RUNS, history.runs, None, "runs"),
        failed=history.failed,
        version=version,
    )
