"""Charts as HTML and SVG for a page: widths in percent, heights and text in pixels.

So a chart fits any screen while its text keeps its size. Colours are classes of the page's style,
and every mark has a tooltip. Equal data give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup, escape

from traceview.render.base.safe_text import visible
from traceview.render.charts.layout import Layout, drawing_of
from traceview.render.charts.marks import (
    Anchor,
    ChartRow,
    ChartRows,
    Disc,
    Label,
    Line,
    Mark,
    Plot,
    Plots,
    Rectangle,
    series_class,
)

_AXIS_PX = 18.0
_ABOVE_BASELINE = 4
"""Pixels by which a text's baseline is below its middle."""


def draw(chart: Layout, title: str) -> Markup:
    """A chart as one element with the title as its accessible name."""
    drawing = drawing_of(chart)
    drawn = _rows(drawing) if isinstance(drawing, ChartRows) else _plots(drawing)
    legend = _legend(drawing.series) if drawing.series else Markup("")
    return Markup('<div class="chart" role="img" aria-label="{}">{}{}</div>').format(
        visible(title), legend, drawn
    )


def _plots(of: Plots) -> Markup:
    drawn = Markup("").join(_plot(plot) for plot in of.plots)
    if of.listed:
        listed = Markup("").join(Markup("<li>{}</li>").format(text) for text in of.listed)
        return Markup('<div class="roofline">{}<ol>{}</ol></div>').format(drawn, listed)
    if any(plot.title for plot in of.plots):
        return Markup('<div class="panels">{}</div>').format(drawn)
    return drawn


def _plot(plot: Plot) -> Markup:
    foot = plot.top + plot.height

    def y_of(value: float) -> float:
        return foot - plot.height * plot.y.fraction(value)

    heights = [(y_of(value), text) for value, text in plot.y.ticks]
    axis = (text(1, y + _ABOVE_BASELINE, words, anchor="end") for y, words in heights)
    grid = [line(0, y, 1, y) for y, _ in heights]
    marks = [*grid, *(_mark(each, plot.x.fraction, y_of) for each in plot.marks)]
    shown = Markup('<div class="plot">{}{}</div>').format(
        svg(foot + plot.bottom, axis, "axis"), svg(foot + plot.bottom, marks, "area")
    )
    if not plot.title:
        return shown
    return Markup('<div><p class="panel">{}</p>{}</div>').format(plot.title, shown)


Place = Callable[[float], float]


def _mark(mark: Mark, x_of: Place, y_of: Place) -> Markup:
    x, y = x_of(mark.x), y_of(mark.y)
    if isinstance(mark, Rectangle):
        x2, y2 = x_of(mark.x2), y_of(mark.y2)
        return rect(x, min(y, y2), x2 - x, abs(y2 - y), mark.style, mark.tooltip)
    if isinstance(mark, Line):
        return line(x, y, x_of(mark.x2), y_of(mark.y2), mark.style)
    if isinstance(mark, Label):
        return text(x, y + mark.down, mark.text, mark.style, mark.anchor)
    return dot(x, y, mark)


def _rows(of: ChartRows) -> Markup:
    """Rows with a label, the bars and their value, or with a time axis below."""
    grid = [line(of.x.fraction(tick), 0, of.x.fraction(tick), of.height) for tick, _ in of.x.ticks]
    rows = Markup("").join(_row(row, of, grid) for row in of.rows)
    if not of.x.ticks:
        return Markup('<div class="bars">{}</div>').format(rows)
    numbers = (
        text(x, 13, words, anchor="start" if x < 0.02 else "end" if x > 0.97 else "middle")
        for x, words in ((of.x.fraction(value), words) for value, words in of.x.ticks)
    )
    axis = Markup("<span></span>") + svg(_AXIS_PX, numbers, "axis")
    return Markup('<div class="bars spans">{}{}</div>').format(rows, axis)


def _row(row: ChartRow, of: ChartRows, grid: Sequence[Markup]) -> Markup:
    bars = (_mark(each, of.x.fraction, lambda y: y) for each in row.marks)
    shown = Markup('<span class="label" title="{}">{}</span>{}').format(
        row.whole, row.label, svg(of.height, [*grid, *bars])
    )
    return shown + Markup('<span class="value">{}</span>').format(row.text) if row.text else shown


def _legend(series: Sequence[str]) -> Markup:
    """One patch of colour and a name per series."""
    patch = Markup('<span><svg width="10" height="10"><rect width="10" height="10" class="{}"/>')
    rest = Markup("</svg> {}</span>")
    entries = (patch.format(series_class(n, series)) + rest.format(n) for n in series)
    return Markup('<p class="legend">{}</p>').format(Markup(" ").join(entries))


def percent(fraction: float) -> str:
    """A fraction of the width, as SVG takes it."""
    return f"{100.0 * fraction:.3f}".rstrip("0").rstrip(".") + "%"


def pixels(length: float) -> str:
    return f"{length:.2f}".rstrip("0").rstrip(".")


# A chart has hundreds of rectangles and lines, for which `Markup.format` is ten times as slow.


def rect(x: float, y: float, width: float, height: float, style: str, tooltip: str) -> Markup:
    """A rectangle. `x` and `width` are fractions of the width, `y` and `height` pixels."""
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<rect x="{percent(x)}" y="{pixels(y)}" width="{percent(width)}" '
        f'height="{pixels(height)}" class="{escape(style)}"><title>{escape(tooltip)}</title></rect>'
    )


def dot(x: float, y: float, disc: Disc) -> Markup:
    """A disc at a fraction of the width and a height in pixels."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"><title>{}</title></circle>').format(
        percent(x), pixels(y), pixels(disc.radius), disc.style, disc.tooltip
    )


def line(x: float, y: float, x2: float, y2: float, style: str = "grid") -> Markup:
    """A line between two points, each a fraction of the width and a height in pixels."""
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<line x1="{percent(x)}" y1="{pixels(y)}" x2="{percent(x2)}" y2="{pixels(y2)}" '
        f'class="{escape(style)}"/>'
    )


def text(x: float, y: float, content: str, style: str = "", anchor: Anchor = "middle") -> Markup:
    """A text at a fraction of the width; `y` is its baseline in pixels."""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
        percent(x), pixels(y), anchor, style, content
    )


def svg(height: float, marks: Iterable[Markup], style: str = "") -> Markup:
    """The marks in an `<svg>` as wide as its place."""
    return Markup('<svg class="{}" width="100%" height="{}">{}</svg>').format(
        style, pixels(height), Markup("").join(marks)
    )
