"""The layout of a stairs chart: measured points and the stairs that a model predicts."""

from __future__ import annotations

import math

from traceview.analyses.base import Chart
from traceview.records import record
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.tables import Cell, Table

_LABEL_WIDTH = 40
# More steps than this look like a straight line.
MOST_STEPS = 60

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
