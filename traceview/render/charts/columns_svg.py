"""A series in order of time as upright columns, one beside the other.

One column that towers over the rest, such as a first step that loads code, would flatten them all:
the axis ends a little above these, and the height of what it cuts off stands on top.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from traceview import units
from traceview.render.charts.layout import Bar, Drawing

MOST_LABELS = 12
_ROOM, _TOWERING = 1.15, 2.5
_WIDTH = 0.82
_LARGEST_LABEL = 14


def draw_columns(axes: Axes, drawing: Drawing, colors: Sequence[str], ink: str) -> None:
    """Draw the bars of a drawing upright, in order from left to right."""
    tops = np.zeros(len(drawing.labels))
    for bar in drawing.bars:
        tops[bar.row] = max(tops[bar.row], bar.start + bar.length)
    reach = _reach(tops)
    divisor, unit = units.axis(drawing.column, reach)
    for bar in drawing.bars:
        _column(axes, bar, divisor, colors[_place(drawing, bar)])
    axes.set_xlim(-0.6, len(tops) - 0.4)
    axes.set_ylim(0, reach / divisor)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}".rstrip()))
    _name_columns(axes, drawing.labels)
    for row in np.flatnonzero(tops > reach).tolist():
        _say_height(axes, row, units.quantity(drawing.column, round(tops[row])), ink)


def _reach(tops: npt.NDArray[np.float64]) -> float:
    """Where the axis ends: above the highest column, or above most if some tower over them."""
    highest, usual = float(tops.max()), float(np.percentile(tops, 75))
    towering = usual > 0 and highest > _TOWERING * usual
    return _ROOM * (float(tops[tops <= _TOWERING * usual].max()) if towering else highest)


def _place(drawing: Drawing, bar: Bar) -> int:
    return drawing.series.index(bar.series) if drawing.series else 0


def _column(axes: Axes, bar: Bar, divisor: float, color: str) -> None:
    # Axes.bar measures each bar for limits, which are set here: three times the time of drawing.
    left = bar.row - _WIDTH / 2
    place = (left, bar.start / divisor)
    axes.add_artist(Rectangle(place, _WIDTH, bar.length / divisor, facecolor=color))


def _name_columns(axes: Axes, labels: Sequence[str]) -> None:
    """The names of some columns, evenly spaced and the first of them always."""
    each = -(-len(labels) // MOST_LABELS)
    shown = range(0, len(labels), each)
    axes.set_xticks(list(shown), [_ending(labels[row]) for row in shown])
    for text in axes.get_xticklabels():
        text.set_parse_math(False)


def _ending(label: str) -> str:
    """What tells steps apart stands at the end of their names."""
    return label if len(label) <= _LARGEST_LABEL else f"…{label[1 - _LARGEST_LABEL :]}"


def _say_height(axes: Axes, row: int, text: str, ink: str) -> None:
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
