"""The layout of a chart, from its declaration and the rows of its table, before it is drawn."""

from __future__ import annotations

from traceview.analyses.base import Chart
from traceview.render.charts.bars import BarChart, bar_chart
from traceview.render.charts.roofline import RooflineChart, roofline_chart
from traceview.render.charts.stairs import StairsChart, stairs_chart
from traceview.tables import Table

Layout = BarChart | StairsChart | RooflineChart


def layout(chart: Chart, table: Table) -> Layout | None:
    """The layout of a chart; None if its table has nothing to draw."""
    if chart.kind == "roofline":
        return roofline_chart(chart, table)
    if chart.kind == "stairs":
        return stairs_chart(chart, table)
    return bar_chart(chart, table)
