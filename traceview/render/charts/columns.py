"""Upright columns side by side, for a series in order of time: their axis, labels and marks.

One column that towers over the rest, such as a first step that loads code, would flatten all
others. The axis then ends a little above the others, and the cut column has its height written on
top. Series that stay high for long, or on one level, such as memory in use, are not cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traceview import units
from traceview.render.charts import marks
from traceview.render.charts.bars import BarChart, tooltip
from traceview.render.charts.marks import Anchor, ChartAxis, Label, Mark, Plot, Plots, Rectangle

MOST_LABELS = 12
_ROOM, _TOWERING, _LONGEST_RUN = 1.15, 2.5, 3
_LONGEST_LABEL = 14
_HEIGHT_PX, _TOP_PX, _AXIS_PX = 190.0, 16.0, 20.0
_COLUMN_WIDTH = 0.82


def columns_plot(chart: BarChart) -> Plots:
    """The columns over their labels, beside an axis of values."""
    tops = np.zeros(len(chart.labels))
    for bar in chart.bars:
        tops[bar.row] = max(tops[bar.row], bar.start + bar.length)
    reach = reach_of(tops)
    drawn: tuple[Mark, ...] = (*_columns(chart, reach), *_labels(chart), *_cut(chart, tops, reach))
    x, y = ChartAxis(0.0, len(tops)), marks.axis(chart.column, reach)
    return Plots((Plot(x, y, drawn, _HEIGHT_PX, _TOP_PX, _AXIS_PX),), chart.series)


def _columns(chart: BarChart, reach: float) -> Iterator[Rectangle]:
    for bar in chart.bars:
        low, high = min(bar.start, reach), min(bar.start + bar.length, reach)
        if high > low:
            left = bar.row + (1 - _COLUMN_WIDTH) / 2
            style = marks.series_class(bar.series, chart.series)
            right = left + _COLUMN_WIDTH
            yield Rectangle(left, high, right, low, style, tooltip(chart, bar, 0))


def _labels(chart: BarChart) -> Iterator[Label]:
    """The first label and others evenly spaced after it; a phone hides every other one."""
    step = -(-len(chart.labels) // MOST_LABELS)
    for number, row in enumerate(range(0, len(chart.labels), step)):
        style = "tick" if number % 3 == 0 else "tick wide"
        yield Label(row + 0.5, 0.0, label_ending(chart.labels[row]), 15, style)


def _cut(chart: BarChart, tops: npt.NDArray[np.float64], reach: float) -> Iterator[Label]:
    for row in cut_columns(tops, reach):
        height = f"↑ {units.quantity(chart.column, round(tops[row]))}"
        anchor: Anchor = "start" if row < len(tops) / 8 else "middle"
        yield Label(row + 0.5, reach, height, -4, "cut", anchor)


def reach_of(tops: npt.NDArray[np.float64]) -> float:
    """The end of the axis: above the highest column, or above most if a few tower over them."""
    usual = float(np.interp(0.75 * (len(tops) - 1), np.arange(len(tops)), np.sort(tops)))
    towers = tops > _TOWERING * usual
    is_level = (towers[1:] & (tops[1:] == tops[:-1])).any()
    if usual <= 0 or is_level or _longest_run(towers) > max(_LONGEST_RUN, len(tops) // MOST_LABELS):
        towers[:] = False
    return _ROOM * float(tops[~towers].max())


def _longest_run(flags: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run of set flags."""
    ends = np.flatnonzero(~np.concatenate(([False], flags, [False])))
    return int(np.diff(ends).max()) - 1


def cut_columns(tops: npt.NDArray[np.float64], reach: float) -> list[int]:
    """The cut columns to label with their height: of close neighbours, the highest."""
    beyond = np.flatnonzero(tops > reach)
    shown: list[int] = []
    for row in beyond[np.argsort(-tops[beyond], kind="stable")].tolist():
        if all(abs(row - other) * MOST_LABELS >= len(tops) for other in shown):
            shown.append(row)
    return sorted(shown)


def label_ending(label: str) -> str:
    """The end of a label, where step names differ; for a path, from a slash on."""
    if len(label) <= _LONGEST_LABEL:
        return label
    end = label[1 - _LONGEST_LABEL :]
    return f"…{end[max(end.find('/'), 0) :]}"
