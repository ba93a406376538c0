"""Bar charts: horizontal or upright bars, stacked or not, and spans of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from traceview import units
from traceview.analyses.base import Chart
from traceview.records import frequent_record, record
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.render.charts import marks
from traceview.render.charts.marks import ChartAxis, ChartRow, ChartRows, Rectangle
from traceview.tables import Cell, RowNumbers, Table, places_of

MOST_SERIES = 6
_LABEL_WIDTH, _SERIES_WIDTH = 34, 18
_OTHER = "other"
_BAR_PX, _SPAN_PX = 16.0, 22.0


@frequent_record
class Bar:
    """One segment of a row, in the unit of its column; `lower` draws it below its pair."""

    row: int
    start: float
    length: float
    series: str
    lower: bool = False


@record
class BarChart:
    """Rows with one label each, their bars, and the text at the end of each row.

    `wholes` are the labels before shortening. `meanings` select the colours of rows without series.
    The axis has the unit of `column`. `left_out` counts the rows beyond the chart's limit. If
    `upright`, the rows are columns from left to right.
    """

    labels: tuple[str, ...]
    bars: tuple[Bar, ...]
    series: tuple[str, ...]
    column: str
    row_texts: tuple[str, ...]
    left_out: int
    wholes: tuple[str, ...]
    meanings: tuple[str, ...] = ()
    upright: bool = False

    def meaning(self, bar: Bar) -> str:
        """The meaning that selects the colour of a bar."""
        return bar.series or (self.meanings or self.wholes)[bar.row]


def bar_chart(chart: Chart, table: Table) -> BarChart | None:
    """The bars of a chart of kind `bars`, `columns` or `spans`; None if none has a length."""
    bars = _spans(chart, table) if chart.kind == "spans" else _bars(chart, table)
    bars = replace(bars, upright=chart.kind == "columns")
    return bars if any(bar.length > 0 for bar in bars.bars) else None


def _bars(chart: Chart, table: Table) -> BarChart:
    if chart.stack is not None:
        return _stacked(chart, chart.stack, table)
    lengths = _lengths(table, chart.value)
    if chart.kind == "columns":
        rows = np.arange(min(len(table), chart.most))
    else:
        rows = np.argsort(-lengths, kind="stable")[: chart.most]
        rows = rows[lengths[rows] > 0]
    shown = table.take(rows)
    bars = tuple(Bar(row, 0.0, length, "") for row, length in enumerate(lengths[rows].tolist()))
    texts = tuple(units.quantity(chart.value, value) for value in shown.cells(chart.value))
    meanings = _names(shown.cells(chart.label))
    names = _names_apart(meanings, shown)
    left_out = len(table) - len(shown)
    return BarChart(_labels(names), bars, (), chart.value, texts, left_out, names, meanings)


def _names_apart(names: tuple[str, ...], table: Table) -> tuple[str, ...]:
    """The names, with the GPU or process added if several rows share a name."""
    columns = {column.name for column in table.columns}
    for column, kind in (("device_id", "GPU"), ("process_id", "process")):
        if len(set(names)) < len(names) and column in columns:
            ids = table.cells(column)
            return tuple(f"{name}, {kind} {id_}" for name, id_ in zip(names, ids, strict=True))
    return names


def _stacked(chart: Chart, stack: str, table: Table) -> BarChart:
    (label, rows), (part, parts) = (_different(table.cells(name)) for name in (chart.label, stack))
    values = _lengths(table, chart.value)
    series = _most_valued(parts, np.bincount(part, values, len(parts)).tolist())
    # Parts that are in no series, not even in `other`, have no length.
    place = {name: number for number, name in enumerate(series)}
    of_part = [place.get(name, place.get(_OTHER, len(series))) for name in parts]
    cell = label * np.int64(len(series) + 1) + np.array(of_part, np.int64)[part]
    shape = len(rows), len(series) + 1
    sums = np.bincount(cell, values, shape[0] * shape[1]).reshape(shape)
    shown = rows[: chart.most]
    lengths = sums[: chart.most, : len(series)].tolist()
    texts = tuple(units.quantity(chart.value, sum(row)) for row in lengths)
    parts_shown = _labels(_names(series), _SERIES_WIDTH)
    bars = tuple(bar for row, p in enumerate(lengths) for bar in _pile(row, p, parts_shown))
    names, left_out = _names(shown), len(rows) - len(shown)
    return BarChart(_labels(names), bars, parts_shown, chart.value, texts, left_out, names)


def _pile(row: int, lengths: Sequence[float], names: Sequence[str]) -> list[Bar]:
    starts = accumulate(lengths, initial=0.0)
    return [Bar(row, *piece) for piece in zip(starts, lengths, names, strict=False)]


def _different(cells: Sequence[Cell]) -> tuple[RowNumbers, list[Cell]]:
    """The number of each cell's value, and the distinct values in order of appearance."""
    different = list(dict.fromkeys(cells))
    return places_of(cells, different), different


def _most_valued(parts: Sequence[Cell], values: Sequence[float]) -> tuple[Cell, ...]:
    """The series with their own colour, largest total first; the rest becomes `other`."""
    totals = dict(zip(parts, values, strict=True))
    names = sorted((name for name in totals if totals[name] > 0), key=lambda n: -totals[n])
    if len(names) <= MOST_SERIES:
        return tuple(names)
    kept = [name for name in names if name != _OTHER][: MOST_SERIES - 1]
    return (*kept, _OTHER)


def _spans(chart: Chart, table: Table) -> BarChart:
    pairs = [(chart.value, chart.end, False), (chart.value2, chart.end2, True)]
    used = [(start, end, lower) for start, end, lower in pairs if start and end]
    names = _names(table.cells(chart.label)[: chart.most])
    cells = {name: table.cells(name)[: chart.most] for pair in used for name in pair[:2]}
    starts = [_number(cell) for start, _, _ in used for cell in cells[start]]
    zero = min((start for start in starts if start is not None), default=0.0)
    bars = tuple(
        Bar(row, first - zero, max(last - first, 0.0), _side(start), lower)
        for start, end, lower in used
        for row, (a, b) in enumerate(zip(cells[start], cells[end], strict=True))
        if (first := _number(a)) is not None and (last := _number(b)) is not None
    )
    series = tuple(_side(start) for start, _, _ in used) if len(used) > 1 else ()
    left_out = len(table) - len(names)
    return BarChart(_labels(names), bars, series, "ns", (), left_out, names)


def _side(column: str) -> str:
    """The side of a pair of spans, from a column's name: `cpu_start_ns` gives `CPU`."""
    return column.removesuffix("_ns").removesuffix("_start").replace("_", " ").upper()


def _names(cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(units.ABSENT if cell is None else visible(str(cell)) for cell in cells)


def _labels(names: Sequence[str], width: int = _LABEL_WIDTH) -> tuple[str, ...]:
    return tuple(shortened_apart(names, width))


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None


def _lengths(table: Table, column: str) -> npt.NDArray[np.float64]:
    """Lengths of the bars for the values; 0 for an absent, negative or infinite one."""
    values = table[column].astype(np.float64)
    return np.where(~table.is_null(column) & (values > 0) & (values < np.inf), values, 0.0)


def rows_of_bars(chart: BarChart) -> ChartRows:
    """Rows with a label, the bar (or its stacked parts) and the value, or spans of time."""
    reach = max(bar.start + bar.length for bar in chart.bars)
    height = _BAR_PX if chart.row_texts else _SPAN_PX
    of_row = defaultdict[int, list[Rectangle]](list)
    paired = any(bar.lower for bar in chart.bars)
    for bar in chart.bars:
        if bar.length > 0:
            of_row[bar.row].append(_rectangle(chart, bar, height, paired))
    texts = chart.row_texts or ("",) * len(chart.labels)
    rows = tuple(
        ChartRow(whole, label, tuple(of_row[row]), text)
        for row, (whole, label, text) in enumerate(
            zip(chart.wholes, chart.labels, texts, strict=True)
        )
    )
    x = ChartAxis(0.0, reach) if chart.row_texts else marks.axis(chart.column, reach)
    return ChartRows(rows, x, height, chart.series)


def _rectangle(chart: BarChart, bar: Bar, height: float, paired: bool) -> Rectangle:
    part = (height - 4) / 2 if paired else height
    top = 2 + part if bar.lower else (2.0 if paired else 0.0)
    style = marks.series_class(chart.meaning(bar), chart.series)
    end = bar.start + bar.length
    return Rectangle(bar.start, top, end, top + part, style, tooltip(chart, bar, 3))


def tooltip(chart: BarChart, bar: Bar, digits: int) -> str:
    """The label of a bar's row, its series and its length."""
    name = chart.wholes[bar.row]
    label = f"{name}, {bar.series}" if bar.series else name
    return f"{label}: {units.quantity(chart.column, round(bar.length, digits))}"
