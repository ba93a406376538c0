"""A roofline: achieved FLOP/s over FLOP per byte, under the ceilings of the GPU."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from traceview import units
from traceview.render.charts.canvas import ChartFigure
from traceview.render.charts.palette import Palette
from traceview.render.charts.roofline import ChartPoint, RooflineChart

_WIDTH_IN, _HEIGHT_IN = 9.5, 4.2
_LEFT_IN, _LIST_IN, _TOP_IN, _BOTTOM_IN = 0.95, 3.0, 0.1, 0.35
_LARGEST_POINTS2, _LEAST_POINTS2 = 900.0, 60.0
_LINE_POINTS = 15


def draw_roofline(chart: RooflineChart, palette: Palette) -> tuple[ChartFigure, Axes]:
    """The figure and its axes."""
    figure = ChartFigure(figsize=(_WIDTH_IN, _HEIGHT_IN))
    width = (_WIDTH_IN - _LEFT_IN - _LIST_IN) / _WIDTH_IN
    height = (_HEIGHT_IN - _TOP_IN - _BOTTOM_IN) / _HEIGHT_IN
    axes = figure.add_axes((_LEFT_IN / _WIDTH_IN, _BOTTOM_IN / _HEIGHT_IN, width, height))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(chart.left, chart.right)
    axes.set_ylim(chart.bottom, chart.top)
    _draw_ceilings(axes, chart, palette)
    for number, point in enumerate(chart.points, 1):
        _draw_point(axes, point, number, palette)
    _format_axes(axes, chart)
    return figure, axes


def _draw_ceilings(axes: Axes, chart: RooflineChart, palette: Palette) -> None:
    ink, line = palette.ink, palette.quiet
    highest = max((rate for rate, _ in chart.levels), default=chart.top)
    for rate, label in chart.slopes:
        end = min(highest / rate, chart.right)
        axes.plot([chart.left, end], [rate * chart.left, rate * end], color=line, lw=1.4)
        _write(axes, label, (chart.left, rate * chart.left), (6, -10), "left", ink)
    widest = max((rate for rate, _ in chart.slopes), default=0.0)
    for rate, label in chart.levels:
        start = max(rate / widest, chart.left) if widest else chart.left
        axes.plot([start, chart.right], [rate, rate], color=line, lw=1.4)
        _write(axes, label, (chart.right, rate), (-4, 4), "right", ink)


def _draw_point(axes: Axes, point: ChartPoint, number: int, palette: Palette) -> None:
    """Draw a disc, its area the fraction of time, with its number, and list the number's label."""
    area = max(_LARGEST_POINTS2 * point.size_fraction, _LEAST_POINTS2)
    color, ink = palette.series[0], palette.ink
    axes.scatter([point.x], [point.y], s=area, color=color, alpha=0.55, linewidths=0, zorder=3)
    _write(axes, str(number), (point.x, point.y), (0, 0), "center", ink)
    listed = axes.annotate(
        f"{number}  {point.label}",
        (1, 1),
        xytext=(12, -_LINE_POINTS * (number - 0.3)),
        xycoords="axes fraction",
        textcoords="offset points",
        va="center",
        color=ink,
        annotation_clip=False,
    )
    listed.set_parse_math(False)


def _write(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    align: str,
    ink: str,
) -> None:
    written = axes.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        ha=align,
        va="center" if align == "center" else "bottom",
        color=ink,
        fontsize=8,
        zorder=4,
        annotation_clip=False,
    )
    written.set_parse_math(False)


def _format_axes(axes: Axes, chart: RooflineChart) -> None:
    for axis, column in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        axis.set_major_formatter(FuncFormatter(lambda value, _, of=column: _tick(of, value)))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _tick(column: str, value: float) -> str:
    divisor, unit = units.axis(column, value)
    return f"{value / divisor:,.6g} {unit}".rstrip()
