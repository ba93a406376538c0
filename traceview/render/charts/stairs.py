"""The layout of a stairs chart: measured points and the stairs that a model predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from traceview import units
from traceview.analyses.base import Chart
from traceview.records import record
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.render.charts import marks
from traceview.render.charts.marks import ChartAxis, Disc, Label, Line, Mark, Plot, Plots
from traceview.tables import Cell, Table

_LABEL_WIDTH = 40
# More steps than this look like a straight line.
MOST_STEPS = 60
_HEIGHT_PX, _TOP_PX, _BOTTOM_PX = 170.0, 8.0, 38.0
_ROOM = 1.06

Point = tuple[float, float]


@record
class Panel:
    """One label: its measured points, and the predicted stairs as the corners of a line."""

    label: str
    points: tuple[Point, ...]
    line: tuple[Point, ...]


@record
class StairsChart:
    """Panels side by side. The axes have the units of `x_column` and `column`.

    `left_out` counts the labels beyond the most that a chart shows.
    """

    panels: tuple[Panel, ...]
    x_column: str
    column: str
    left_out: int


def stairs_chart(chart: Chart, table: Table) -> StairsChart | None:
    """The panels of a chart; None if the table has no point to draw."""
    names = (chart.label, chart.x or "", chart.value, chart.run or "", chart.rise or "")
    rows = list(zip(*(table.cells(name) for name in names), strict=True))
    labels = list(dict.fromkeys(row[0] for row in rows))
    shown = labels[: chart.most]
    titles = shortened_apart([visible(str(label)) for label in shown], _LABEL_WIDTH)
    panels = tuple(
        _panel(title, [row[1:] for row in rows if row[0] == label])
        for title, label in zip(titles, shown, strict=True)
    )
    if not any(panel.points for panel in panels):
        return None
    return StairsChart(panels, chart.x or "", chart.value, len(labels) - len(shown))


def _panel(label: str, rows: list[tuple[Cell, ...]]) -> Panel:
    numbers = [[_number(cell) for cell in row] for row in rows]
    points = tuple((x, y) for x, y, *_ in numbers if x and y)
    run, rise = numbers[0][2:]
    reach = max((x for x, _ in points), default=0.0)
    return Panel(label, points, _line(run, rise, reach) if run and rise else ())


def _number(cell: Cell) -> float | None:
    """A positive finite number; None for any other cell, which cannot be drawn."""
    if isinstance(cell, int | float) and math.isfinite(cell) and cell > 0:
        return float(cell)
    return None


def _line(run: float, rise: float, reach: float) -> tuple[Point, ...]:
    """The corners of the stairs from 0 to beyond `reach`."""
    steps = math.ceil(reach / run)
    if steps > MOST_STEPS:
        return ((0.0, 0.0), (steps * run, steps * rise))
    return tuple(
        corner
        for step in range(steps)
        for corner in ((step * run, (step + 1) * rise), ((step + 1) * run, (step + 1) * rise))
    )


def stairs_plots(chart: StairsChart) -> Plots:
    """One panel per label, side by side if there is room."""
    return Plots(tuple(_plot(panel, chart) for panel in chart.panels))


def _plot(panel: Panel, chart: StairsChart) -> Plot:
    highest = max((y for _, y in (*panel.points, *panel.line)), default=1.0) * _ROOM
    reach = max((x for x, _ in panel.points), default=1.0) * _ROOM
    drawn: tuple[Mark, ...] = (
        *(Label(tick, 0.0, marks.tick_text(tick), 16) for tick in marks.ticks(reach, 4)),
        Label(reach / 2, 0.0, units.label(chart.x_column), 32),
        *_steps(panel.line, reach),
        *(Disc(x, y, 3, "bar", _tooltip(x, y, chart)) for x, y in panel.points),
    )
    x, y = ChartAxis(0.0, reach), marks.axis(chart.column, highest)
    return Plot(x, y, drawn, _HEIGHT_PX, _TOP_PX, _BOTTOM_PX, panel.label)


def _steps(corners: tuple[Point, ...], reach: float) -> Iterator[Line]:
    """The predicted line as far as the panel reaches."""
    for (x, y), (x2, y2) in pairwise(corners):
        if x > reach:
            break
        end = min(x2, reach)
        y_end = y + (y2 - y) * (end - x) / (x2 - x) if x2 > x else y2
        yield Line(x, y, end, y_end, "model")


def _tooltip(x: float, y: float, chart: StairsChart) -> str:
    where = f"{units.label(chart.x_column)} {units.quantity(chart.x_column, round(x))}"
    return f"{where}: {units.quantity(chart.column, y)}"
