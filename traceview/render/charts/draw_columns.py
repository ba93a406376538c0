"""Upright columns side by side, for a series in order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from traceview import units
from traceview.render.charts.bars import Bar, BarChart
from traceview.render.charts.canvas import ChartFigure
from traceview.render.charts.columns import (
    MOST_LABELS,
    cut_columns,
    label_ending,
    reach_of,
)
from traceview.render.charts.draw_bars import add_legend
from traceview.render.charts.palette import Palette

_WIDTH_IN, _HEIGHT_IN = 9.5, 2.9
_COLUMN_WIDTH = 0.82


def draw_columns(chart: BarChart, palette: Palette) -> tuple[ChartFigure, Axes]:
    """The figure and its axes."""
    figure = ChartFigure(figsize=(_WIDTH_IN, _HEIGHT_IN))
    legend_in = 0.5 if chart.series else 0.25
    bottom, left = 0.3 / _HEIGHT_IN, 0.8 / _WIDTH_IN
    top = 1 - legend_in / _HEIGHT_IN
    axes = figure.add_axes((left, bottom, 1 - left - 0.2 / _WIDTH_IN, top - bottom))
    _add_columns(axes, chart, palette)
    if chart.series:
        add_legend(axes, chart.series, palette, 0.2 / (_HEIGHT_IN - legend_in))
    return figure, axes


def _add_columns(axes: Axes, chart: BarChart, palette: Palette) -> None:
    tops = np.zeros(len(chart.labels))
    for bar in chart.bars:
        tops[bar.row] = max(tops[bar.row], bar.start + bar.length)
    reach = reach_of(tops)
    divisor, unit = units.axis(chart.column, reach)
    for bar in chart.bars:
        _add_column(axes, bar, divisor, palette.of(chart.meaning(bar), chart.series))
    axes.set_xlim(-0.6, len(tops) - 0.4)
    axes.set_ylim(0, reach / divisor)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}".rstrip()))
    _label_columns(axes, chart.labels)
    for row in cut_columns(tops, reach):
        _write_height(axes, row, units.quantity(chart.column, round(tops[row])), palette.quiet)


def _add_column(axes: Axes, bar: Bar, divisor: float, color: str) -> None:
    # Not Axes.bar, which measures each bar for limits that are set here: three times as slow.
    corner = (bar.row - _COLUMN_WIDTH / 2, bar.start / divisor)
    axes.add_artist(Rectangle(corner, _COLUMN_WIDTH, bar.length / divisor, facecolor=color))


def _label_columns(axes: Axes, labels: Sequence[str]) -> None:
    """Label the first column and others evenly spaced after it, at most MOST_LABELS."""
    each = -(-len(labels) // MOST_LABELS)
    shown = range(0, len(labels), each)
    axes.set_xticks(list(shown), [label_ending(labels[row]) for row in shown])
    for text in axes.get_xticklabels():
        text.set_parse_math(False)


def _write_height(axes: Axes, row: int, text: str, ink: str) -> None:
    axes.annotate(
        f"↑ {text}",
        (row, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, -2),
        textcoords="offset points",
        ha="center" if row else "left",
        va="bottom",
        color=ink,
        annotation_clip=False,
        parse_math=False,
    )
