"""A chart as marks in the units of its axes: rectangles, lines, discs and texts.

Charts describe themselves once; `svg` draws them on pages, `figure` with matplotlib. Sizes that are
no data, such as offsets of texts, are in pixels. The `style` of a mark is a CSS class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from traceview.base import units
from traceview.base.records import frequent_record, record
from traceview.render.base.code import color_class

NEUTRAL = "bar"
"""The class of marks without a particular meaning."""
Anchor = Literal["start", "middle", "end"]


@record
class ChartAxis:
    """The values between the ends of an axis, and the ticks that have a grid line and a text."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False

    def fraction(self, value: float) -> float:
        """The place of a value: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, fraction: float) -> float:
        """The value at a place."""
        if self.log:
            return float(self.low * (self.high / self.low) ** fraction)
        return self.low + fraction * (self.high - self.low)


@frequent_record
class Rectangle:
    """A rectangle between two corners."""

    x: float
    y: float
    x2: float
    y2: float
    style: str
    tooltip: str


@frequent_record
class Line:
    x: float
    y: float
    x2: float
    y2: float
    style: str = "grid"


@record
class Disc:
    """A disc with a radius in pixels."""

    x: float
    y: float
    radius: float
    style: str
    tooltip: str


@record
class Label:
    """A text with its baseline `down` pixels below a point."""

    x: float
    y: float
    text: str
    down: float = 0.0
    style: str = ""
    anchor: Anchor = "middle"


Mark = Rectangle | Line | Disc | Label


@record
class Plot:
    """Marks over a grid of the ticks of `y`. The area is `height` pixels high, with more around."""

    x: ChartAxis
    y: ChartAxis
    marks: tuple[Mark, ...]
    height: float
    top: float
    bottom: float
    title: str = ""


@record
class Plots:
    """Plots side by side. `series` are named in a legend, `listed` the numbered points."""

    plots: tuple[Plot, ...]
    series: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


@record
class ChartRow:
    """A row of bars: its label, whole and shortened, and the text at its end.

    The vertical positions of its marks are pixels from its upper edge.
    """

    whole: str
    label: str
    marks: tuple[Rectangle, ...]
    text: str = ""


@record
class ChartRows:
    """Rows of the same height over a common axis."""

    rows: tuple[ChartRow, ...]
    x: ChartAxis
    height: float
    series: tuple[str, ...] = ()


Drawing = Plots | ChartRows


def series_class(name: str, series: Sequence[str]) -> str:
    """The colour class of a series: by its meaning, else the next one of the page's series."""
    if not series:
        return color_class(name) or NEUTRAL
    return color_class(name) or f"s-{series.index(name) + 1}"


def ticks(reach: float, most: int = 5) -> list[float]:
    """About `most` round numbers from 0 to at most `reach`, in steps of 1, 2 or 5 × 10^n."""
    if reach <= 0:
        return [0.0]
    rough = reach / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [number * step for number in range(math.floor(reach / step * 1.0001) + 1)]


def axis(column: str, reach: float) -> ChartAxis:
    """An axis from 0, with ticks in the unit of a column."""
    divisor, unit = units.axis(column, reach)
    shown = [(tick * divisor, tick_text(tick, unit)) for tick in ticks(reach / divisor)]
    return ChartAxis(0.0, reach, tuple(shown))


def powers(column: str, low: float, high: float, most: int = 7) -> ChartAxis:
    """A logarithmic axis with ticks at powers of ten, at most `most` of them."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    step = max(1, math.ceil((last - first + 1) / most))
    shown = [10.0**power for power in range(first, last + 1, step)]
    return ChartAxis(
        low, high, tuple((value, _in_its_unit(column, value)) for value in shown), log=True
    )


def _in_its_unit(column: str, value: float) -> str:
    divisor, unit = units.axis(column, value)
    return tick_text(value / divisor, unit)


def tick_text(value: float, unit: str = "") -> str:
    return f"{value:,.6g} {unit}".rstrip()
