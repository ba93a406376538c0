"""Upright columns side by side, for a series in order of time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from traceview import units
from traceview.render.charts.bars import BarChart
from traceview.render.charts.columns import (
    MOST_LABELS,
    cut_columns,
    label_ending,
    reach_of,
)
from traceview.render.charts.svg.marks import (
    legend,
    line,
    rect,
    scale,
    series_class,
    svg,
    text,
    tick_text,
)

_HEIGHT_PX, _TOP_PX, _AXIS_PX = 190.0, 16.0, 20.0
_COLUMN_WIDTH = 0.82
_BOTTOM = _TOP_PX + _HEIGHT_PX


def columns_html(chart: BarChart) -> Markup:
    """The columns over their labels, beside an axis of values."""
    tops = np.zeros(len(chart.labels))
    for bar in chart.bars:
        tops[bar.row] = max(tops[bar.row], bar.start + bar.length)
    reach = reach_of(tops)
    divisor, unit, levels = scale(chart.column, reach)
    height = {level: _BOTTOM - _HEIGHT_PX * level / reach for level in levels}
    axis = (text(1, y + 4, tick_text(v / divisor, unit), anchor="end") for v, y in height.items())
    grid = [line(0, y, 1, y) for y in height.values()]
    marks = [*grid, *_columns(chart, reach), *_labels(chart), *_cut(chart, tops, reach)]
    shown = Markup('<div class="plot">{}{}</div>').format(
        svg(_BOTTOM + _AXIS_PX, axis, "axis"), svg(_BOTTOM + _AXIS_PX, marks, "area")
    )
    return legend(chart.series) + shown if chart.series else shown


def _columns(chart: BarChart, reach: float) -> list[Markup]:
    width = 1.0 / len(chart.labels)
    marks = []
    for bar in chart.bars:
        low, high = min(bar.start, reach), min(bar.start + bar.length, reach)
        if high <= low:
            continue
        value = units.quantity(chart.column, round(bar.length))
        name = f"{chart.wholes[bar.row]}, {bar.series}" if bar.series else chart.wholes[bar.row]
        marks.append(
            rect(
                (bar.row + (1 - _COLUMN_WIDTH) / 2) * width,
                _BOTTOM - _HEIGHT_PX * high / reach,
                _COLUMN_WIDTH * width,
                _HEIGHT_PX * (high - low) / reach,
                series_class(bar.series, chart.series),
                f"{name}: {value}",
            )
        )
    return marks


def _labels(chart: BarChart) -> list[Markup]:
    """The first label and others evenly spaced after it; a phone hides every other one."""
    each = -(-len(chart.labels) // MOST_LABELS)
    return [
        text(
            (row + 0.5) / len(chart.labels),
            _BOTTOM + 15,
            label_ending(chart.labels[row]),
            "tick" if number % 3 == 0 else "tick wide",
        )
        for number, row in enumerate(range(0, len(chart.labels), each))
    ]


def _cut(chart: BarChart, tops: npt.NDArray[np.float64], reach: float) -> list[Markup]:
    return [
        text(
            (row + 0.5) / len(tops),
            _TOP_PX - 4,
            f"↑ {units.quantity(chart.column, round(tops[row]))}",
            "cut",
            "start" if row < len(tops) / 8 else "middle",
        )
        for row in cut_columns(tops, reach)
    ]
