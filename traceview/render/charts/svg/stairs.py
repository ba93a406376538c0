"""Panels side by side: measured points over the stairs that a model predicts."""

from __future__ import annotations

from itertools import pairwise

from markupsafe import Markup

from traceview import units
from traceview.render.charts.stairs import Panel, Point, StairsChart
from traceview.render.charts.svg.marks import dot, line, scale, svg, text, tick_text, ticks

_HEIGHT_PX, _TOP_PX, _BOTTOM_PX = 170.0, 8.0, 38.0
_ROOM = 1.06


def stairs_html(chart: StairsChart) -> Markup:
    """One panel per label, side by side if there is room."""
    panels = Markup("").join(_panel(panel, chart) for panel in chart.panels)
    return Markup('<div class="panels">{}</div>').format(panels)


def _panel(panel: Panel, chart: StairsChart) -> Markup:
    highest = max((y for _, y in (*panel.points, *panel.line)), default=1.0) * _ROOM
    reach = max((x for x, _ in panel.points), default=1.0) * _ROOM
    divisor, unit, levels = scale(chart.column, highest)
    across = ticks(reach, 4)

    def y_of(value: float) -> float:
        return _TOP_PX + _HEIGHT_PX * (1 - value / highest)

    axis = [text(1, y_of(v) + 4, tick_text(v / divisor, unit), anchor="end") for v in levels]
    marks = [
        *(line(0, y_of(v), 1, y_of(v)) for v in levels),
        *(text(v / reach, y_of(0) + 16, tick_text(v, "")) for v in across),
        text(0.5, y_of(0) + 32, units.label(chart.x_column)),
        *_stairs(panel.line, reach, y_of(0) - _TOP_PX, highest),
        *(dot(x / reach, y_of(y), 3, "bar", _tooltip(x, y, chart)) for x, y in panel.points),
    ]
    height = _TOP_PX + _HEIGHT_PX + _BOTTOM_PX
    return Markup('<div><p class="panel">{}</p><div class="plot">{}{}</div></div>').format(
        panel.label, svg(height, axis, "axis"), svg(height, marks, "area")
    )


def _stairs(
    corners: tuple[Point, ...], reach: float, height: float, highest: float
) -> list[Markup]:
    """The predicted line as far as the panel reaches."""
    marks = []
    for (x, y), (x2, y2) in pairwise(corners):
        if x > reach:
            break
        end = min(x2, reach)
        y_end = y + (y2 - y) * (end - x) / (x2 - x) if x2 > x else y2
        up, up_end = (_TOP_PX + height * (1 - v / highest) for v in (y, y_end))
        marks.append(line(x / reach, up, end / reach, up_end, "model"))
    return marks


def _tooltip(x: float, y: float, chart: StairsChart) -> str:
    where = f"{units.label(chart.x_column)} {units.quantity(chart.x_column, round(x))}"
    return f"{where}: {units.quantity(chart.column, y)}"
