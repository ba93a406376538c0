"""Panels of measured points over predicted stairs, one beside the other."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from traceview import units
from traceview.render.charts.stairs import Panel, Stairs

_WIDTH_IN, _HEIGHT_IN = 9.5, 3.0
_LEFT_IN, _BETWEEN_IN, _TOP_IN, _BOTTOM_IN = 0.75, 0.8, 0.35, 0.5
_LEAST_PANELS = 2
_ROOM = 1.06


def draw_stairs(drawing: Stairs, point: str, line: str, ink: str) -> tuple[Figure, list[Axes]]:
    """The figure and its axes; `point`, `line` and `ink` are colours."""
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), facecolor="none")
    # A single panel as wide as the page would look flat.
    places = max(len(drawing.panels), _LEAST_PANELS)
    width = (_WIDTH_IN - _LEFT_IN - _BETWEEN_IN * (places - 1) - 0.1) / places
    height = _HEIGHT_IN - _TOP_IN - _BOTTOM_IN
    drawn = []
    for place, panel in enumerate(drawing.panels):
        left = _LEFT_IN + place * (width + _BETWEEN_IN)
        box = (left / _WIDTH_IN, _BOTTOM_IN / _HEIGHT_IN, width / _WIDTH_IN, height / _HEIGHT_IN)
        axes = figure.add_axes(box)
        _panel(axes, panel, drawing, (point, line))
        title = axes.set_title(panel.label, loc="left", fontsize=9, color=ink)
        title.set_parse_math(False)
        drawn.append(axes)
    return figure, drawn


def _panel(axes: Axes, panel: Panel, drawing: Stairs, colors: tuple[str, str]) -> None:
    point, line = colors
    highest = max((y for _, y in (*panel.points, *panel.line)), default=1.0)
    divisor, unit = units.axis(drawing.column, highest)
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
    axes.set_xlabel(units.label(drawing.x_column), color=line)
