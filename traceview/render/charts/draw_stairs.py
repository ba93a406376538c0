"""Panels side by side: measured points over the stairs that a model predicts."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from traceview import units
from traceview.render.charts.canvas import ChartFigure
from traceview.render.charts.palette import Palette
from traceview.render.charts.stairs import Panel, StairsChart

_WIDTH_IN, _HEIGHT_IN = 9.5, 3.0
_LEFT_IN, _BETWEEN_IN, _TOP_IN, _BOTTOM_IN = 0.75, 0.8, 0.35, 0.5
_LEAST_PANELS = 2
_ROOM = 1.06


def draw_stairs(chart: StairsChart, palette: Palette) -> tuple[ChartFigure, list[Axes]]:
    """The figure and the axes of its panels."""
    figure = ChartFigure(figsize=(_WIDTH_IN, _HEIGHT_IN))
    # A single panel as wide as the page would look flat.
    columns = max(len(chart.panels), _LEAST_PANELS)
    width = (_WIDTH_IN - _LEFT_IN - _BETWEEN_IN * (columns - 1) - 0.1) / columns
    height = _HEIGHT_IN - _TOP_IN - _BOTTOM_IN
    panels = []
    for column, panel in enumerate(chart.panels):
        left = _LEFT_IN + column * (width + _BETWEEN_IN)
        box = (left / _WIDTH_IN, _BOTTOM_IN / _HEIGHT_IN, width / _WIDTH_IN, height / _HEIGHT_IN)
        axes = figure.add_axes(box)
        _draw_panel(axes, panel, chart, palette)
        title = axes.set_title(panel.label, loc="left", fontsize=9, color=palette.ink)
        title.set_parse_math(False)
        panels.append(axes)
    return figure, panels


def _draw_panel(axes: Axes, panel: Panel, chart: StairsChart, palette: Palette) -> None:
    point, line = palette.series[0], palette.quiet
    highest = max((y for _, y in (*panel.points, *panel.line)), default=1.0)
    divisor, unit = units.axis(chart.column, highest)
    if panel.line:
        across, up = zip(*panel.line, strict=True)
        axes.plot(across, [y / divisor for y in up], color=line, linewidth=1.4)
    if panel.points:
        across, up = zip(*panel.points, strict=True)
        axes.plot(across, [y / divisor for y in up], "o", color=point, markersize=4.5)
    reach = max((x for x, _ in panel.points), default=1.0)
    # A point at 1 block is whole only if the axis begins before it.
    axes.set_xlim(-0.02 * reach, reach * _ROOM)
    axes.set_ylim(0, highest / divisor * _ROOM)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}".rstrip()))
    axes.set_xlabel(units.label(chart.x_column), color=line)
