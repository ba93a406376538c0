"""Horizontal bars: one row per label, its value at the end."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Transform

from traceview import units
from traceview.render.charts.bars import BarChart
from traceview.render.charts.canvas import ChartFigure
from traceview.render.charts.palette import Palette

_WIDTH_IN = 9.5
_ROW_IN = 0.27
_MARGIN_IN = 0.4
_LABEL_IN = 2.75
_RIGHT_IN = 0.95


def draw_bars(chart: BarChart, palette: Palette) -> tuple[ChartFigure, Axes]:
    """The figure and its axes."""
    legend_in = 0.3 if chart.series else 0.0
    row_in = _ROW_IN * (1.5 if any(bar.lower for bar in chart.bars) else 1)
    height = row_in * len(chart.labels) + _MARGIN_IN + legend_in
    figure = ChartFigure(figsize=(_WIDTH_IN, height))
    top = 1 - (0.06 + legend_in) / height
    bottom = (_MARGIN_IN - 0.06) / height
    right = 1 - (_RIGHT_IN if chart.row_texts else 0.2) / _WIDTH_IN
    left = _LABEL_IN / _WIDTH_IN
    axes = figure.add_axes((left, bottom, right - left, top - bottom))
    _add_bars(axes, chart, palette)
    axes.set_ylim(len(chart.labels) - 0.4, -0.6)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if chart.series:
        add_legend(axes, chart.series, palette)
    return figure, axes


def _add_bars(axes: Axes, chart: BarChart, palette: Palette) -> None:
    reach = max(bar.start + bar.length for bar in chart.bars)
    divisor, unit = units.axis(chart.column, reach)
    paired = any(bar.lower for bar in chart.bars)
    for bar in chart.bars:
        height = bar.row + (0.2 if bar.lower else -0.2) if paired else bar.row
        axes.barh(
            height,
            bar.length / divisor,
            left=bar.start / divisor,
            height=0.36 if paired else 0.66,
            color=palette.of(chart.meaning(bar), chart.series),
        )
    axes.set_xlim(0, reach / divisor * (1.0 if chart.row_texts else 1.01))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}".rstrip()))
    _label_rows(axes, chart, divisor, palette)


def _label_rows(axes: Axes, chart: BarChart, divisor: float, palette: Palette) -> None:
    for row, label in enumerate(chart.labels):
        _text(axes, (0.0, row), -5, label, palette.ink, axes.get_yaxis_transform())
    ends = [0.0] * len(chart.labels)
    for bar in chart.bars:
        ends[bar.row] = max(ends[bar.row], (bar.start + bar.length) / divisor)
    for row, text in enumerate(chart.row_texts):
        _text(axes, (ends[row], row), 5, text, palette.quiet, axes.transData)


def _text(
    axes: Axes, at: tuple[float, float], offset: int, text: str, color: str, transform: Transform
) -> None:
    axes.annotate(
        text,
        at,
        xytext=(offset, 0),
        xycoords=transform,
        textcoords="offset points",
        ha="left" if offset > 0 else "right",
        va="center_baseline",
        color=color,
        annotation_clip=False,
        parse_math=False,
    )


def add_legend(axes: Axes, series: Sequence[str], palette: Palette, above: float = 0.0) -> None:
    """Put a legend over the axes; `above` is extra space, as a fraction of their height."""
    handles = [Patch(color=palette.of(name, series), label=name) for name in series]
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1 + above),
        ncols=len(series),
        frameon=False,
        borderpad=0,
        borderaxespad=0.3,
        handlelength=1,
        handleheight=1,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
