"""The layout of a chart, from its declaration and the rows of its table, and its marks."""

from __future__ import annotations

from traceview.analyses.base import Chart
from traceview.render.charts.bars import BarChart, bar_chart, rows_of_bars
from traceview.render.charts.columns import columns_plot
from traceview.render.charts.marks import Drawing
from traceview.render.charts.roofline import RooflineChart, roofline_chart, roofline_plot
from traceview.render.charts.stairs import StairsChart, stairs_chart, stairs_plots
from traceview.tables import Table

Layout = BarChart | StairsChart | RooflineChart


def layout(chart: Chart, table: Table) -> Layout | None:
    """The layout of a chart; None if its table has nothing to draw."""
    if chart.kind == "roofline":
        return roofline_chart(chart, table)
    if chart.kind == "stairs":
        return stairs_chart(chart, table)
    return bar_chart(chart, table)


def drawing_of(chart: Layout) -> Drawing:
    """The marks of a layout."""
    if isinstance(chart, RooflineChart):
        return roofline_plot(chart)
    if isinstance(chart, StairsChart):
        return stairs_plots(chart)
    return columns_plot(chart) if chart.upright else rows_of_bars(chart)
