"""Charts of bars, upright or not, spans of time, columns, and measured points on predicted
stairs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from traceview.base import units
from traceview.base.records import frequent_record, record
from traceview.base.tables import Cell, RowNumbers, Table, places_of
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.render.charts import marks
from traceview.traces.analyses.base import Chart

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


def rows_of_bars(chart: BarChart) -> marks.ChartRows:
    """Rows with a label, the bar (or its stacked parts) and the value, or spans of time."""
    reach = max(bar.start + bar.length for bar in chart.bars)
    height = _BAR_PX if chart.row_texts else _SPAN_PX
    of_row = defaultdict[int, list[marks.Rectangle]](list)
    paired = any(bar.lower for bar in chart.bars)
    for bar in chart.bars:
        if bar.length > 0:
            part = (height - 4) / 2 if paired else height
            top = 2 + part if bar.lower else (2.0 if paired else 0.0)
            style = marks.series_class(chart.meaning(bar), chart.series)
            end = bar.start + bar.length
            of_row[bar.row].append(
                marks.Rectangle(bar.start, top, end, top + part, style, tooltip(chart, bar, 3))
            )
    texts = chart.row_texts or ("",) * len(chart.labels)
    rows = tuple(
        marks.ChartRow(whole, label, tuple(of_row[row]), text)
        for row, (whole, label, text) in enumerate(
            zip(chart.wholes, chart.labels, texts, strict=True)
        )
    )
    x = marks.ChartAxis(0.0, reach) if chart.row_texts else marks.axis(chart.column, reach)
    return marks.ChartRows(rows, x, height, chart.series)


def tooltip(chart: BarChart, bar: Bar, digits: int) -> str:
    """The label of a bar's row, its series and its length."""
    name = chart.wholes[bar.row]
    label = f"{name}, {bar.series}" if bar.series else name
    return f"{label}: {units.quantity(chart.column, round(bar.length, digits))}"


# Upright columns side by side, for a series in order of time: their axis, labels and marks.
#
# One column that towers over the rest, such as a first step that loads code, would flatten all
# others. The axis then ends a little above the others, and the cut column has its height written
# on top. Series that stay high for long, or on one level, such as memory in use, are not cut.

MOST_LABELS = 12
_ROOM, _TOWERING, _LONGEST_RUN = 1.15, 2.5, 3
_LONGEST_LABEL = 14
_HEIGHT_PX, _TOP_PX, _AXIS_PX = 190.0, 16.0, 20.0
_COLUMN_WIDTH = 0.82


def columns_plot(chart: BarChart) -> marks.Plots:
    """The columns over their labels, beside an axis of values."""
    tops = np.zeros(len(chart.labels))
    for bar in chart.bars:
        tops[bar.row] = max(tops[bar.row], bar.start + bar.length)
    reach = reach_of(tops)
    drawn: tuple[marks.Mark, ...] = (
        *_columns(chart, reach),
        *_column_labels(chart),
        *_cut(chart, tops, reach),
    )
    x, y = marks.ChartAxis(0.0, len(tops)), marks.axis(chart.column, reach)
    return marks.Plots((marks.Plot(x, y, drawn, _HEIGHT_PX, _TOP_PX, _AXIS_PX),), chart.series)


def _columns(chart: BarChart, reach: float) -> Iterator[marks.Rectangle]:
    for bar in chart.bars:
        low, high = min(bar.start, reach), min(bar.start + bar.length, reach)
        if high > low:
            left = bar.row + (1 - _COLUMN_WIDTH) / 2
            style = marks.series_class(bar.series, chart.series)
            right = left + _COLUMN_WIDTH
            yield marks.Rectangle(left, high, right, low, style, tooltip(chart, bar, 0))


def _column_labels(chart: BarChart) -> Iterator[marks.Label]:
    """The first label and others evenly spaced after it; a phone hides every other one."""
    step = -(-len(chart.labels) // MOST_LABELS)
    for number, row in enumerate(range(0, len(chart.labels), step)):
        style = "tick" if number % 3 == 0 else "tick wide"
        yield marks.Label(row + 0.5, 0.0, label_ending(chart.labels[row]), 15, style)


def _cut(chart: BarChart, tops: npt.NDArray[np.float64], reach: float) -> Iterator[marks.Label]:
    for row in cut_columns(tops, reach):
        height = f"↑ {units.quantity(chart.column, round(tops[row]))}"
        anchor: marks.Anchor = "start" if row < len(tops) / 8 else "middle"
        yield marks.Label(row + 0.5, reach, height, -4, "cut", anchor)


def reach_of(tops: npt.NDArray[np.float64]) -> float:
    """The end of the axis: above the highest column, or above most if a few tower over them."""
    usual = float(np.interp(0.75 * (len(tops) - 1), np.arange(len(tops)), np.sort(tops)))
    towers = tops > _TOWERING * usual
    is_level = (towers[1:] & (tops[1:] == tops[:-1])).any()
    if usual <= 0 or is_level or _longest_run(towers) > max(_LONGEST_RUN, len(tops) // MOST_LABELS):
        towers[:] = False
    return _ROOM * float(tops[~towers].max())


def _longest_run(flags: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run of set flags."""
    ends = np.flatnonzero(~np.concatenate(([False], flags, [False])))
    return int(np.diff(ends).max()) - 1


def cut_columns(tops: npt.NDArray[np.float64], reach: float) -> list[int]:
    """The cut columns to label with their height: of close neighbours, the highest."""
    beyond = np.flatnonzero(tops > reach)
    shown: list[int] = []
    for row in beyond[np.argsort(-tops[beyond], kind="stable")].tolist():
        if all(abs(row - other) * MOST_LABELS >= len(tops) for other in shown):
            shown.append(row)
    return sorted(shown)


def label_ending(label: str) -> str:
    """The end of a label, where step names differ; for a path, from a slash on."""
    if len(label) <= _LONGEST_LABEL:
        return label
    end = label[1 - _LONGEST_LABEL :]
    return f"…{end[max(end.find('/'), 0) :]}"


_PANEL_WIDTH = 40
# More steps than this look like a straight line.
MOST_STEPS = 60
_PANEL_PX, _ABOVE_PX, _BELOW_PX = 170.0, 8.0, 38.0
_ABOVE_POINTS = 1.06

Point = tuple[float, float]


@record
class Panel:
    """One label: its measured points, and the predicted stairs as the corners of a line."""

    label: str
    points: tuple[Point, ...]
    line: tuple[Point, ...]


@record
class StairsChart:
    """Panels side by side. The axes have the units of `x_column` and `column`.

    `left_out` counts the labels beyond the most that a chart shows.
    """

    panels: tuple[Panel, ...]
    x_column: str
    column: str
    left_out: int


def stairs_chart(chart: Chart, table: Table) -> StairsChart | None:
    """The panels of a chart; None if the table has no point to draw."""
    names = (chart.label, chart.x or "", chart.value, chart.run or "", chart.rise or "")
    rows = list(zip(*(table.cells(name) for name in names), strict=True))
    labels = list(dict.fromkeys(row[0] for row in rows))
    shown = labels[: chart.most]
    titles = shortened_apart([visible(str(label)) for label in shown], _PANEL_WIDTH)
    panels = tuple(
        _panel(title, [row[1:] for row in rows if row[0] == label])
        for title, label in zip(titles, shown, strict=True)
    )
    if not any(panel.points for panel in panels):
        return None
    return StairsChart(panels, chart.x or "", chart.value, len(labels) - len(shown))


def _panel(label: str, rows: list[tuple[Cell, ...]]) -> Panel:
    numbers = [[_positive(cell) for cell in row] for row in rows]
    points = tuple((x, y) for x, y, *_ in numbers if x and y)
    run, rise = numbers[0][2:]
    reach = max((x for x, _ in points), default=0.0)
    return Panel(label, points, _line(run, rise, reach) if run and rise else ())


def _positive(cell: Cell) -> float | None:
    """A positive finite number; None for any other cell, which cannot be drawn."""
    if isinstance(cell, int | float) and math.isfinite(cell) and cell > 0:
        return float(cell)
    return None


def _line(run: float, rise: float, reach: float) -> tuple[Point, ...]:
    """The corners of the stairs from 0 to beyond `reach`."""
    steps = math.ceil(reach / run)
    if steps > MOST_STEPS:
        return ((0.0, 0.0), (steps * run, steps * rise))
    return tuple(
        corner
        for step in range(steps)
        for corner in ((step * run, (step + 1) * rise), ((step + 1) * run, (step + 1) * rise))
    )


def stairs_plots(chart: StairsChart) -> marks.Plots:
    """One panel per label, side by side if there is room."""
    return marks.Plots(tuple(_plot(panel, chart) for panel in chart.panels))


def _plot(panel: Panel, chart: StairsChart) -> marks.Plot:
    highest = max((y for _, y in (*panel.points, *panel.line)), default=1.0) * _ABOVE_POINTS
    reach = max((x for x, _ in panel.points), default=1.0) * _ABOVE_POINTS
    drawn: tuple[marks.Mark, ...] = (
        *(marks.Label(tick, 0.0, marks.tick_text(tick), 16) for tick in marks.ticks(reach, 4)),
        marks.Label(reach / 2, 0.0, units.label(chart.x_column), 32),
        *_steps(panel.line, reach),
        *(marks.Disc(x, y, 3, "bar", _tooltip(x, y, chart)) for x, y in panel.points),
    )
    x, y = marks.ChartAxis(0.0, reach), marks.axis(chart.column, highest)
    return marks.Plot(x, y, drawn, _PANEL_PX, _ABOVE_PX, _BELOW_PX, panel.label)


def _steps(corners: tuple[Point, ...], reach: float) -> Iterator[marks.Line]:
    """The predicted line as far as the panel reaches."""
    for (x, y), (x2, y2) in pairwise(corners):
        if x > reach:
            break
        end = min(x2, reach)
        y_end = y + (y2 - y) * (end - x) / (x2 - x) if x2 > x else y2
        yield marks.Line(x, y, end, y_end, "model")


def _tooltip(x: float, y: float, chart: StairsChart) -> str:
    where = f"{units.label(chart.x_column)} {units.quantity(chart.x_column, round(x))}"
    return f"{where}: {units.quantity(chart.column, y)}"
