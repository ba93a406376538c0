"""Horizontal bars: one row per label, its value at the end; and spans over a common time axis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from markupsafe import Markup

from traceview import units
from traceview.render.charts.bars import Bar, BarChart
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

_BAR_PX, _SPAN_PX = 16.0, 22.0
_AXIS_PX = 18.0


def bars_html(chart: BarChart) -> Markup:
    """Rows with a label, the bar (or its stacked parts) and the value."""
    reach = max(bar.start + bar.length for bar in chart.bars)
    of_row = _by_row(chart.bars)
    rows = (
        _row(chart, row, svg(_BAR_PX, _marks(chart, of_row[row], reach, _BAR_PX)))
        + Markup('<span class="value">{}</span>').format(chart.row_texts[row])
        for row in range(len(chart.labels))
    )
    shown = Markup('<div class="bars">{}</div>').format(Markup("").join(rows))
    return legend(chart.series) + shown if chart.series else shown


def spans_html(chart: BarChart) -> Markup:
    """Rows of spans from a common zero, with a time axis below."""
    reach = max(bar.start + bar.length for bar in chart.bars)
    of_row = _by_row(chart.bars)
    divisor, unit, marks = scale(chart.column, reach)
    grid = [line(tick / reach, 0, tick / reach, _SPAN_PX) for tick in marks]
    rows = (
        _row(chart, row, svg(_SPAN_PX, [*grid, *_marks(chart, of_row[row], reach, _SPAN_PX)]))
        for row in range(len(chart.labels))
    )
    numbers = (
        text(tick / reach, 13, tick_text(tick / divisor, unit), anchor=_anchor(tick / reach))
        for tick in marks
    )
    axis = Markup("<span></span>") + svg(_AXIS_PX, numbers, "axis")
    shown = Markup('<div class="bars spans">{}{}</div>').format(Markup("").join(rows), axis)
    return legend(chart.series) + shown if chart.series else shown


def _by_row(bars: Iterable[Bar]) -> defaultdict[int, list[Bar]]:
    rows: defaultdict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        rows[bar.row].append(bar)
    return rows


def _row(chart: BarChart, row: int, drawn: Markup) -> Markup:
    return Markup('<span class="label" title="{}">{}</span>{}').format(
        chart.wholes[row], chart.labels[row], drawn
    )


def _marks(chart: BarChart, bars: Iterable[Bar], reach: float, height: float) -> list[Markup]:
    paired = any(bar.lower for bar in chart.bars)
    each = (height - 4) / 2 if paired else height
    return [
        rect(
            bar.start / reach,
            2 + each if bar.lower else (2.0 if paired else 0.0),
            bar.length / reach,
            each,
            series_class(chart.meaning(bar), chart.series),
            _tooltip(chart, bar),
        )
        for bar in bars
        if bar.length > 0
    ]


def _tooltip(chart: BarChart, bar: Bar) -> str:
    name = chart.wholes[bar.row]
    label = f"{name}, {bar.series}" if bar.series else name
    return f"{label}: {units.quantity(chart.column, round(bar.length, 3))}"


def _anchor(fraction: float) -> str:
    return "start" if fraction < 0.02 else "end" if fraction > 0.97 else "middle"
