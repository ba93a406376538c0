"""Charts as matplotlib figures, drawn from their layout.

Only this module and the `draw_*` modules import matplotlib, which takes most of a second: callers
import them only when there is a figure to draw. The charts of pages are in `svg/`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes

from traceview.render.charts.bars import BarChart
from traceview.render.charts.canvas import ChartFigure
from traceview.render.charts.draw_bars import draw_bars
from traceview.render.charts.draw_columns import draw_columns
from traceview.render.charts.draw_roofline import draw_roofline
from traceview.render.charts.draw_stairs import draw_stairs
from traceview.render.charts.layout import Layout
from traceview.render.charts.palette import Palette
from traceview.render.charts.roofline import RooflineChart

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "traceview",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "path.simplify": False,
}


def draw(chart: Layout, palette: Palette) -> ChartFigure:
    """A chart as a figure of its own, independent of pyplot. Call it within `settings`."""
    if isinstance(chart, RooflineChart):
        figure, axes = draw_roofline(chart, palette)
        _strip(axes, "both", palette)
    elif isinstance(chart, BarChart) and chart.upright:
        figure, axes = draw_columns(chart, palette)
        _strip(axes, "y", palette)
    elif isinstance(chart, BarChart):
        figure, axes = draw_bars(chart, palette)
        _strip(axes, "x", palette)
    else:
        figure, panels = draw_stairs(chart, palette)
        for axes in panels:
            _strip(axes, "y", palette)
    figure.set_facecolor(palette.paper)
    return figure


def _strip(axes: Axes, measured: Literal["x", "y", "both"], palette: Palette) -> None:
    """Leave nothing but the data and a pale grid across the measured axis."""
    axes.set_facecolor("none")
    axes.tick_params(length=0, colors=palette.quiet)
    axes.grid(axis=measured, color=palette.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


@contextmanager
def settings(palette: Palette) -> Iterator[None]:
    """Apply our settings on matplotlib's defaults, regardless of the user's matplotlibrc."""
    with rc_context(), warnings.catch_warnings():
        # Names may have characters that the measuring font lacks, but the browser's fonts have.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        rcdefaults()
        rcParams.update(_SETTINGS)
        rcParams.update({"text.color": palette.ink, "xtick.color": palette.quiet})
        yield
