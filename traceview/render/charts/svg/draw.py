"""Charts as HTML and SVG for a page: widths in percent, heights and text in pixels.

So a chart fits any screen while its text keeps its size. Colours are classes of the page's style,
and every mark has a tooltip. Equal data give equal bytes.
"""

from __future__ import annotations

from markupsafe import Markup

from traceview.render.base.safe_text import visible
from traceview.render.charts.bars import BarChart
from traceview.render.charts.layout import Layout
from traceview.render.charts.roofline import RooflineChart
from traceview.render.charts.svg.bars import bars_html, spans_html
from traceview.render.charts.svg.columns import columns_html
from traceview.render.charts.svg.roofline import roofline_html
from traceview.render.charts.svg.stairs import stairs_html


def draw(chart: Layout, title: str) -> Markup:
    """A chart as one element with the title as its accessible name."""
    return Markup('<div class="chart" role="img" aria-label="{}">{}</div>').format(
        visible(title), _drawn(chart)
    )


def _drawn(chart: Layout) -> Markup:
    if isinstance(chart, RooflineChart):
        return roofline_html(chart)
    if not isinstance(chart, BarChart):
        return stairs_html(chart)
    if chart.upright:
        return columns_html(chart)
    return bars_html(chart) if chart.row_texts else spans_html(chart)
