"""The marks of a chart: rectangles, lines, dots and texts, and the ticks of an axis.

A chart has hundreds of rectangles and lines, for which `Markup.format` is ten times as slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from traceview import units
from traceview.render.base.colors import color_class

NEUTRAL = "bar"
"""The class of marks without a particular meaning."""


def series_class(name: str, series: Sequence[str]) -> str:
    """The colour class of a series: by its meaning, else the next one of the page's series."""
    if not series:
        return color_class(name) or NEUTRAL
    return color_class(name) or f"s-{series.index(name) + 1}"


def percent(fraction: float) -> str:
    """A fraction of the width, as SVG takes it."""
    return f"{100.0 * fraction:.3f}".rstrip("0").rstrip(".") + "%"


def pixels(length: float) -> str:
    return f"{length:.2f}".rstrip("0").rstrip(".")


def rect(x: float, y: float, width: float, height: float, style: str, tooltip: str) -> Markup:
    """A rectangle. `x` and `width` are fractions of the width, `y` and `height` pixels."""
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<rect x="{percent(x)}" y="{pixels(y)}" width="{percent(width)}" '
        f'height="{pixels(height)}" class="{escape(style)}"><title>{escape(tooltip)}</title></rect>'
    )


def dot(x: float, y: float, radius: float, style: str, tooltip: str) -> Markup:
    """A disc at a fraction of the width and a height in pixels."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"><title>{}</title></circle>').format(
        percent(x), pixels(y), pixels(radius), style, tooltip
    )


def line(x: float, y: float, x2: float, y2: float, style: str = "grid") -> Markup:
    """A line between two points, each a fraction of the width and a height in pixels."""
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<line x1="{percent(x)}" y1="{pixels(y)}" x2="{percent(x2)}" y2="{pixels(y2)}" '
        f'class="{escape(style)}"/>'
    )


def text(x: float, y: float, content: str, style: str = "", anchor: str = "middle") -> Markup:
    """A text at a fraction of the width; `y` is its baseline in pixels."""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
        percent(x), pixels(y), anchor, style, content
    )


def svg(height: float, marks: Iterable[Markup], style: str = "") -> Markup:
    """The marks in an `<svg>` as wide as its place."""
    return Markup('<svg class="{}" width="100%" height="{}">{}</svg>').format(
        style, pixels(height), Markup("").join(marks)
    )


def legend(series: Sequence[str]) -> Markup:
    """One patch of colour and a name per series."""
    patch = Markup('<span><svg width="10" height="10"><rect width="10" height="10" class="{}"/>')
    rest = Markup("</svg> {}</span>")
    entries = (patch.format(series_class(n, series)) + rest.format(n) for n in series)
    return Markup('<p class="legend">{}</p>').format(Markup(" ").join(entries))


def ticks(reach: float, most: int = 5) -> list[float]:
    """About `most` round numbers from 0 to at most `reach`, in steps of 1, 2 or 5 × 10^n."""
    if reach <= 0:
        return [0.0]
    rough = reach / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [number * step for number in range(math.floor(reach / step * 1.0001) + 1)]


def scale(column: str, reach: float) -> tuple[float, str, list[float]]:
    """Divisor and unit of an axis, and its ticks in the column's own unit."""
    divisor, unit = units.axis(column, reach)
    return divisor, unit, [tick * divisor for tick in ticks(reach / divisor)]


def tick_text(value: float, unit: str) -> str:
    return f"{value:,.6g} {unit}".rstrip()
