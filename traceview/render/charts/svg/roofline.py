"""A roofline: achieved FLOP/s over FLOP per byte, under the ceilings of the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup

from traceview import units
from traceview.records import record
from traceview.render.charts.roofline import RooflineChart
from traceview.render.charts.svg.marks import dot, line, svg, text, tick_text

_HEIGHT_PX, _TOP_PX, _AXIS_PX = 300.0, 8.0, 20.0
_LARGEST_PX, _LEAST_PX = 20.0, 6.0
_MOST_TICKS = 7


@record
class _Frame:
    """The logarithmic axes of a chart as fractions of the width and heights in pixels."""

    chart: RooflineChart

    def x(self, value: float) -> float:
        chart = self.chart
        return math.log(value / chart.left) / math.log(chart.right / chart.left)

    def y(self, value: float) -> float:
        chart = self.chart
        up = math.log(value / chart.bottom) / math.log(chart.top / chart.bottom)
        return _TOP_PX + _HEIGHT_PX * (1 - up)


def roofline_html(chart: RooflineChart) -> Markup:
    """Numbered discs under the ceilings, and the list of their labels."""
    frame = _Frame(chart)
    bottom = _TOP_PX + _HEIGHT_PX
    rows, columns = _powers(chart.bottom, chart.top), _powers(chart.left, chart.right)
    axis = [text(1, frame.y(v) + 4, _tick(chart.y, v), anchor="end") for v in rows]
    marks = [
        *(line(0, frame.y(v), 1, frame.y(v)) for v in rows),
        *(line(frame.x(v), _TOP_PX, frame.x(v), bottom) for v in columns),
        *(text(frame.x(v), bottom + 15, _tick(chart.x, v)) for v in columns),
        *_ceilings(frame),
        *_points(frame),
    ]
    listed = Markup("").join(Markup("<li>{}</li>").format(point.label) for point in chart.points)
    return Markup('<div class="roofline"><div class="plot">{}{}</div><ol>{}</ol></div>').format(
        svg(bottom + _AXIS_PX, axis, "axis"), svg(bottom + _AXIS_PX, marks, "area"), listed
    )


def _ceilings(frame: _Frame) -> Iterator[Markup]:
    chart = frame.chart
    highest = max((rate for rate, _ in chart.levels), default=chart.top)
    for rate, label in chart.slopes:
        end = min(highest / rate, chart.right)
        start_y, end_y = frame.y(rate * chart.left), frame.y(rate * end)
        yield line(0, start_y, frame.x(end), end_y, "model")
        yield text(0.01, start_y - 14, label, "ceiling", "start")
    widest = max((rate for rate, _ in chart.slopes), default=0.0)
    for rate, label in chart.levels:
        start = max(rate / widest, chart.left) if widest else chart.left
        yield line(frame.x(start), frame.y(rate), 1, frame.y(rate), "model")
        yield text(0.99, frame.y(rate) - 5, label, "ceiling", "end")


def _points(frame: _Frame) -> Iterator[Markup]:
    """A disc per point, its area the fraction of time, with its number."""
    chart = frame.chart
    for number, point in enumerate(chart.points, 1):
        radius = max(_LARGEST_PX * math.sqrt(point.size_fraction), _LEAST_PX)
        x, y = frame.x(point.x), frame.y(point.y)
        rate, intensity = units.quantity(chart.y, point.y), units.quantity(chart.x, point.x)
        yield dot(x, y, radius, "point", f"{point.label}: {rate} at {intensity}")
        yield text(x, y + 4, str(number), "number")


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten between two values, at most _MOST_TICKS of them."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    each = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
    return [10.0**power for power in range(first, last + 1, each)]


def _tick(column: str, value: float) -> str:
    divisor, unit = units.axis(column, value)
    return tick_text(value / divisor, unit)
