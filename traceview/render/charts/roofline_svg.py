"""Kernels under the roofs of their GPU: what they do over how much they do for each byte."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from traceview import units
from traceview.render.charts.roofline import Point, Roofline

_WIDTH_IN, _HEIGHT_IN = 9.5, 4.2
_LEFT_IN, _LIST_IN, _TOP_IN, _BOTTOM_IN = 0.95, 3.0, 0.1, 0.35
_LARGEST_POINTS2, _LEAST_POINTS2 = 900.0, 60.0
_LINE_POINTS = 15


def draw_roofline(drawing: Roofline, point: str, line: str, ink: str) -> tuple[Figure, Axes]:
    """The figure and its axes; `point`, `line` and `ink` are colours."""
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), facecolor="none")
    width = (_WIDTH_IN - _LEFT_IN - _LIST_IN) / _WIDTH_IN
    height = (_HEIGHT_IN - _TOP_IN - _BOTTOM_IN) / _HEIGHT_IN
    axes = figure.add_axes((_LEFT_IN / _WIDTH_IN, _BOTTOM_IN / _HEIGHT_IN, width, height))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(drawing.left, drawing.right)
    axes.set_ylim(drawing.bottom, drawing.top)
    _draw_roofs(axes, drawing, line, ink)
    for number, each in enumerate(drawing.points, 1):
        _draw_point(axes, each, number, point, ink)
    _name_axes(axes, drawing)
    return figure, axes


def _draw_roofs(axes: Axes, drawing: Roofline, line: str, ink: str) -> None:
    highest = max((rate for rate, _ in drawing.levels), default=drawing.top)
    for rate, said in drawing.slopes:
        end = min(highest / rate, drawing.right)
        axes.plot([drawing.left, end], [rate * drawing.left, rate * end], color=line, lw=1.4)
        _say(axes, said, (drawing.left, rate * drawing.left), (6, -10), "left", ink)
    widest = max((rate for rate, _ in drawing.slopes), default=0.0)
    for rate, said in drawing.levels:
        start = max(rate / widest, drawing.left) if widest else drawing.left
        axes.plot([start, drawing.right], [rate, rate], color=line, lw=1.4)
        _say(axes, said, (drawing.right, rate), (-4, 4), "right", ink)


def _draw_point(axes: Axes, each: Point, number: int, color: str, ink: str) -> None:
    """A disc whose area is the share of time, its number, and what that stands for beside."""
    area = max(_LARGEST_POINTS2 * each.share, _LEAST_POINTS2)
    axes.scatter([each.x], [each.y], s=area, color=color, alpha=0.55, linewidths=0, zorder=3)
    _say(axes, str(number), (each.x, each.y), (0, 0), "center", ink)
    listed = axes.annotate(
        f"{number}  {each.label}",
        (1, 1),
        xytext=(12, -_LINE_POINTS * (number - 0.3)),
        xycoords="axes fraction",
        textcoords="offset points",
        va="center",
        color=ink,
        annotation_clip=False,
    )
    listed.set_parse_math(False)


def _say(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float],
    align: str,
    ink: str,
) -> None:
    said = axes.annotate(
        text,
        place,
        xytext=offset,
        textcoords="offset points",
        ha=align,
        va="center" if align == "center" else "bottom",
        color=ink,
        fontsize=8,
        zorder=4,
        annotation_clip=False,
    )
    said.set_parse_math(False)


def _name_axes(axes: Axes, drawing: Roofline) -> None:
    for axis, column in ((axes.xaxis, drawing.x), (axes.yaxis, drawing.y)):
        axis.set_major_formatter(FuncFormatter(lambda value, _, of=column: _tick(of, value)))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _tick(column: str, value: float) -> str:
    divisor, unit = units.axis(column, value)
    return f"{value / divisor:,.6g} {unit}".rstrip()
