"""Charts as matplotlib figures, drawn from the marks that pages draw as SVG.

Only this module imports matplotlib, which takes most of a second: callers import it only when there
is a figure to draw. A pixel of a page is a point of a figure.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patches import Rectangle as RectanglePatch

from traceview.render.base.code import MEANINGS
from traceview.render.charts.layout import Layout, drawing_of
from traceview.render.charts.marks import (
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

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "traceview",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "path.simplify": False,
}
_INCH = 72.0
_WIDTH, _LABELS, _VALUES, _AXIS, _LISTED = 684.0, 198.0, 68.0, 68.0, 216.0
_TITLE, _LEGEND, _LINE, _BETWEEN_ROWS = 29.0, 22.0, 15.0, 4.0

INK, QUIET, GRID, PAPER = "#1b1f24", "#59626d", "#dfe3e8", "#ffffff"
SERIES = ("#2f6db3", "#c8701a", "#4b9560", "#a8517f", "#7c6bb5", "#8b929b")
"""The light colours of `templates/report.css`, for a figure that stands alone."""
_STYLES = {"grid": GRID, "model": QUIET, "number": INK, "ceiling": INK, "cut": INK}
_ALIGNED = {"start": "left", "middle": "center", "end": "right"}


class ChartFigure(Figure):
    """A matplotlib figure that a notebook shows without `%matplotlib inline`."""

    def _repr_svg_(self) -> str:
        written = io.StringIO()
        self.savefig(written, format="svg")
        return written.getvalue()


def draw(chart: Layout, title: str) -> ChartFigure:
    """A chart below its title as a figure of its own, independent of pyplot."""
    drawing = drawing_of(chart)
    with _settings():
        return _rows(drawing, title) if isinstance(drawing, ChartRows) else _plots(drawing, title)


def color_of(style: str) -> str:
    """The colour of a page's class: of a meaning, of a series, else the first one's."""
    if style.startswith("c-"):
        return MEANINGS[style.removeprefix("c-")][0]
    return SERIES[int(style.removeprefix("s-")) - 1] if style.startswith("s-") else SERIES[0]


def _rows(of: ChartRows, title: str) -> ChartFigure:
    pitch = of.height + _BETWEEN_ROWS
    height = pitch * len(of.rows)
    figure, top = _figure(title, of.series, height + (_LEGEND if of.x.ticks else 0))
    axes = _axes(figure, _LABELS, top, _WIDTH - _LABELS - _VALUES, height)
    axes.set(xlim=(of.x.low, of.x.high), ylim=(len(of.rows), 0), yticks=[])
    ticks = [value for value, _ in of.x.ticks]
    axes.set_xticks(ticks, [text for _, text in of.x.ticks])
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    middles = [number + of.height / pitch / 2 for number in range(len(of.rows))]
    for row, middle in zip(of.rows, middles, strict=True):
        _write(axes, row.label, (of.x.low, middle), (-5, -3), INK, "right")
    for number, row in enumerate(of.rows):
        end = max((mark.x2 for mark in row.marks), default=of.x.low)
        _write(axes, row.text, (end, middles[number]), (5, -3), QUIET, "left")
        _add(axes, row.marks, number, 1 / pitch)
    _add_legend(axes, of.series)
    return figure


def _plots(of: Plots, title: str) -> ChartFigure:
    titles = _LINE if any(plot.title for plot in of.plots) else 0.0
    high = max(plot.top + plot.height + plot.bottom for plot in of.plots)
    figure, top = _figure(title, of.series, high + titles)
    room = _WIDTH - (_LISTED if of.listed else 0.0)
    # A single panel as wide as the page would look flat.
    width = room / (max(len(of.plots), 2) if titles else 1)
    for column, plot in enumerate(of.plots):
        left = column * width + _AXIS
        axes = _axes(figure, left, top + titles + plot.top, width - _AXIS - 10, plot.height)
        _draw_plot(axes, plot)
        for number, text in enumerate(of.listed, 1):
            where = (plot.x.high, plot.y.high)
            _write(axes, f"{number}  {text}", where, (12, -_LINE * number), INK, "left")
        _add_legend(axes, of.series, plot.top / plot.height)
    return figure


def _draw_plot(axes: Axes, plot: Plot) -> None:
    if plot.x.log:
        axes.set(xscale="log", yscale="log")
    axes.set(xlim=(plot.x.low, plot.x.high), ylim=(plot.y.low, plot.y.high), xticks=[])
    axes.set_yticks([value for value, _ in plot.y.ticks], [text for _, text in plot.y.ticks])
    axes.tick_params(which="minor", length=0, labelleft=False, labelbottom=False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_title(plot.title, loc="left", fontsize=9, color=INK)
    _add(axes, plot.marks)


def _add(axes: Axes, marks: Sequence[Mark], first: float = 0.0, pitch: float = 1.0) -> None:
    """Add marks; the vertical axis has `first` and `pitch` for a mark's 0 and unit."""
    for mark in marks:
        x, y = mark.x, first + pitch * mark.y
        if isinstance(mark, Rectangle):
            # Not Axes.bar, which measures each bar for limits that are set: three times as slow.
            size = (mark.x2 - x, pitch * (mark.y2 - mark.y))
            axes.add_artist(RectanglePatch((x, y), *size, facecolor=color_of(mark.style)))
        elif isinstance(mark, Line):
            ends = ([x, mark.x2], [y, first + pitch * mark.y2])
            axes.plot(*ends, color=_STYLES[mark.style], lw=0.8 if mark.style == "grid" else 1.4)
        elif isinstance(mark, Label):
            color = _STYLES.get(mark.style, QUIET)
            _write(axes, mark.text, (x, y), (0, -mark.down), color, _ALIGNED[mark.anchor])
        else:
            _add_disc(axes, mark)


def _add_disc(axes: Axes, disc: Disc) -> None:
    alpha = 0.6 if disc.style == "point" else 1.0
    size = 2 * disc.radius
    axes.plot([disc.x], [disc.y], "o", ms=size, mew=0, color=color_of(disc.style), alpha=alpha)


def _write(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    color: str,
    align: str,
) -> None:
    axes.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        ha=align,
        color=color,
        annotation_clip=False,
        zorder=4,
        parse_math=False,
    )


def _figure(title: str, series: Sequence[str], height: float) -> tuple[ChartFigure, float]:
    """A figure with room for a chart, and the distance of the chart from its top."""
    top = _TITLE + (_LEGEND if series else 0.0)
    whole = top + height + 6
    figure = ChartFigure(figsize=(_WIDTH / _INCH, whole / _INCH), facecolor=PAPER)
    figure.text(0.01, 1 - 7 / whole, title, va="top", size=11, parse_math=False)
    return figure, top


def _axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes that show nothing but the data."""
    across, up = figure.get_size_inches() * _INCH
    axes = figure.add_axes(
        (left / across, 1 - (top + height) / up, width / across, height / up), facecolor="none"
    )
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=QUIET)
    for side in axes.spines.values():
        side.set_visible(False)
    return axes


def _add_legend(axes: Axes, series: Sequence[str], above: float = 0.0) -> None:
    """A legend `above` the axes, in fractions of their height."""
    if not series:
        return
    handles = [Patch(color=color_of(series_class(name, series)), label=name) for name in series]
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


@contextmanager
def _settings() -> Iterator[None]:
    """Apply our settings on matplotlib's defaults, regardless of the user's matplotlibrc."""
    with rc_context(), warnings.catch_warnings():
        # Names may have characters that the measuring font lacks, but the browser's fonts have.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        rcdefaults()
        rcParams.update(_SETTINGS)
        rcParams.update({"text.color": INK, "xtick.color": QUIET})
        yield
