"""The layout of a chart, from its declaration and the rows of its table, such as a roofline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from traceview.base import units
from traceview.base.errors import InputError, ToolNotFoundError
from traceview.base.records import record
from traceview.base.tables import Cell, Table
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.render.charts import bars, marks
from traceview.traces.analyses.base import Chart, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABEL_WIDTH = 32
_ROOM = 3.0
_LEAST, _MOST = 1e-12, 1e24
_HEIGHT_PX, _TOP_PX, _AXIS_PX = 300.0, 8.0, 20.0
_LARGEST_PX, _LEAST_PX = 20.0, 6.0


@record
class ChartPoint:
    """One row of the table. `size_fraction` is its fraction of the sum of all points' sizes."""

    x: float
    y: float
    size_fraction: float
    label: str


@record
class RooflineChart:
    """Points under ceilings, both axes logarithmic.

    `slopes` are the memory ceilings, which rise with x, `levels` the compute ceilings, which are
    flat; each has a label. `x` and `y` are the columns on the axes, `left` to `top` their limits.
    `left_out` counts the rows without a value on both axes, and those beyond the most that a chart
    shows.
    """

    points: tuple[ChartPoint, ...]
    slopes: tuple[tuple[float, str], ...]
    levels: tuple[tuple[float, str], ...]
    x: str
    y: str
    left: float
    right: float
    bottom: float
    top: float
    left_out: int


def roofline_chart(chart: Chart, table: Table) -> RooflineChart | None:
    """The points of a chart, largest first; None if no row has a value on both axes."""
    x, y, size, label = chart.x or "", chart.value, chart.size or "", chart.label
    slope, level, kind = chart.slope or "", chart.level or "", chart.stack or ""
    rows = [row for row in table.rows() if _positive(row[x]) and _positive(row[y])]
    rows.sort(key=lambda row: -_number(row[size]))
    shown = rows[: chart.most]
    if not shown:
        return None
    slopes = _ceilings((row[slope], "memory") for row in shown)
    levels = _ceilings((row[level], str(row[kind])) for row in shown)
    labels = shortened_apart([visible(str(row[label])) for row in shown], _LABEL_WIDTH)
    whole = sum(_number(row[size]) for row in shown) or 1.0
    points = tuple(
        ChartPoint(_number(row[x]), _number(row[y]), _number(row[size]) / whole, name)
        for row, name in zip(shown, labels, strict=True)
    )
    return _framed(points, slopes, levels, (x, y), (slope, level), len(table) - len(shown))


def _framed(
    points: tuple[ChartPoint, ...],
    slopes: dict[float, str],
    levels: dict[float, str],
    axes: tuple[str, str],
    columns: tuple[str, str],
    left_out: int,
) -> RooflineChart:
    """The chart with axes that reach all points and the ridges, where two ceilings meet."""
    ridges = [level / slope for level in levels for slope in slopes]
    across = [*(point.x for point in points), *ridges]
    up = [*(point.y for point in points), *levels]
    left, right = min(across) / _ROOM, max(across) * _ROOM
    up += [slope * min(across) for slope in slopes]
    return RooflineChart(
        points,
        tuple(_labelled(slopes, columns[0])),
        tuple(_labelled(levels, columns[1])),
        *axes,
        left=left,
        right=right,
        bottom=min(up) / _ROOM,
        top=max(up) * _ROOM,
        left_out=left_out,
    )


def _ceilings(rates: Iterable[tuple[Cell, str]]) -> dict[float, str]:
    return {_number(rate): name for rate, name in rates if _positive(rate)}


def _labelled(ceilings: dict[float, str], column: str) -> Iterator[tuple[float, str]]:
    for rate, name in sorted(ceilings.items()):
        yield rate, f"{name} {units.quantity(column, rate)}"


def _positive(cell: Cell) -> bool:
    """Whether a cell is a positive number that a machine could reach, and so fits a log axis."""
    return _LEAST < _number(cell) < _MOST


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _drawn_ceilings(chart: RooflineChart, x: marks.ChartAxis) -> Iterator[marks.Mark]:
    highest = max((rate for rate, _ in chart.levels), default=chart.top)
    for rate, label in chart.slopes:
        end = min(highest / rate, chart.right)
        yield marks.Line(chart.left, rate * chart.left, end, rate * end, "model")
        yield marks.Label(x.at(0.01), rate * chart.left, label, -14, "ceiling", "start")
    widest = max((rate for rate, _ in chart.slopes), default=0.0)
    for rate, label in chart.levels:
        start = max(rate / widest, chart.left) if widest else chart.left
        yield marks.Line(start, rate, chart.right, rate, "model")
        yield marks.Label(x.at(0.99), rate, label, -5, "ceiling", "end")


def _discs(chart: RooflineChart) -> Iterator[marks.Mark]:
    """A disc per point, its area the fraction of time, with its number."""
    for number, point in enumerate(chart.points, 1):
        radius = max(_LARGEST_PX * math.sqrt(point.size_fraction), _LEAST_PX)
        rate, intensity = units.quantity(chart.y, point.y), units.quantity(chart.x, point.x)
        yield marks.Disc(point.x, point.y, radius, "point", f"{point.label}: {rate} at {intensity}")
        yield marks.Label(point.x, point.y, str(number), 4, "number")


Layout = bars.BarChart | bars.StairsChart | RooflineChart


def layout(chart: Chart, table: Table) -> Layout | None:
    """The layout of a chart; None if its table has nothing to draw."""
    if chart.kind == "roofline":
        return roofline_chart(chart, table)
    if chart.kind == "stairs":
        return bars.stairs_chart(chart, table)
    return bars.bar_chart(chart, table)


def drawing_of(chart: Layout) -> marks.Drawing:
    """The marks of a layout."""
    if isinstance(chart, RooflineChart):
        # Numbered discs under the ceilings, and the list of their labels.
        x = marks.powers(chart.x, chart.left, chart.right)
        y = marks.powers(chart.y, chart.bottom, chart.top)
        drawn = (
            *(marks.Line(value, y.high, value, y.low) for value, _ in x.ticks),
            *(marks.Label(value, y.low, text, 15) for value, text in x.ticks),
            *_drawn_ceilings(chart, x),
            *_discs(chart),
        )
        plot = marks.Plot(x, y, drawn, _HEIGHT_PX, _TOP_PX, _AXIS_PX)
        return marks.Plots((plot,), listed=tuple(point.label for point in chart.points))
    if isinstance(chart, bars.StairsChart):
        return bars.stairs_plots(chart)
    return bars.columns_plot(chart) if chart.upright else bars.rows_of_bars(chart)


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
