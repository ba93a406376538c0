"""The chart of a result table as a matplotlib figure."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from traceview.analyses.base import Result
from traceview.errors import InputError, ToolNotFoundError
from traceview.render.charts.layout import layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(result: Result, table: str) -> Figure:
    """The chart declared for a table of a result.

    Raises InputError if the table has none, or if it has nothing to draw.
    """
    if not find_spec("matplotlib"):
        remedy = "install it: pip install matplotlib"
        raise ToolNotFoundError("figure() needs matplotlib", remedy)
    charts = result.analysis.charts if result.analysis else ()
    chart = next((chart for chart in charts if chart.table == table), None)
    if chart is None:
        known = ", ".join(dict.fromkeys(chart.table for chart in charts)) or "none"
        raise InputError(f"no chart is declared for a table {table!r}", f"tables with one: {known}")
    drawing = layout(chart, result.tables[table])
    if drawing is None:
        raise InputError(f"the table {table!r} has nothing to draw")
    from traceview.render.charts import figure

    return figure.draw(drawing, chart.title)
