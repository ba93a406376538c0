"""Stairs charts: laid out for any table, drawn as SVG in the colors of the page."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.render.example_report import CONTROLS, HOSTILE
from traceview.base.tables import Column, Table
from traceview.render.charts.bars import MOST_STEPS, StairsChart
from traceview.render.charts.layout import layout
from traceview.render.charts.svg import draw
from traceview.traces.analyses.base import Chart

COLUMNS = (
    Column("kernel", "text", "which"),
    Column("blocks", "int64", "how many", nullable=True),
    Column("median_ns", "float64", "how long", nullable=True),
    Column("wave_blocks", "int64", "how many at once"),
    Column("wave_ns", "int64", "how long a wave"),
)
CHART = Chart(
    *("stairs", "grids", "t", "kernel", "median_ns"), x="blocks", run="wave_blocks", rise="wave_ns"
)


def table(*rows):
    names = [column.name for column in COLUMNS]
    return Table.from_rows(COLUMNS, [dict(zip(names, row, strict=True)) for row in rows])


def test_one_panel_per_label_with_points_and_stairs():
    stairs = layout(
        CHART,
        table(("a", 100, 20.0, 132, 21), ("b", 5, 7.0, 10, 7), ("a", 133, 40.0, 132, 21)),
    )
    assert isinstance(stairs, StairsChart)
    a, b = stairs.panels
    assert (a.label, a.points) == ("a", ((100.0, 20.0), (133.0, 40.0)))
    assert a.line == ((0.0, 21.0), (132.0, 21.0), (132.0, 42.0), (264.0, 42.0))
    assert b.line == ((0.0, 7.0), (10.0, 7.0))
    assert (stairs.x_column, stairs.column, stairs.left_out) == ("blocks", "median_ns", 0)


def test_labels_beyond_the_limit_are_counted():
    stairs = layout(replace(CHART, most=2), table(*((f"k{i}", 1, 1.0, 1, 1) for i in range(5))))
    assert (len(stairs.panels), stairs.left_out) == (2, 3)


@pytest.mark.parametrize("odd", [None, 0.0, -1.0, math.inf, math.nan])
def test_values_that_cannot_be_drawn_are_left_out(odd):
    stairs = layout(CHART, table(("a", 5, odd, 10, 7), ("a", 6, 1.0, 10, 7)))
    assert stairs.panels[0].points == ((6.0, 1.0),)


def test_a_table_without_points_has_no_chart():
    assert layout(CHART, table()) is None
    assert layout(CHART, table(("a", None, 3.0, 1, 1))) is None


def test_very_many_steps_are_a_straight_line():
    stairs = layout(CHART, table(("a", 1 << 60, 3.0, 1, 1)))
    assert len(stairs.panels[0].line) == 2
    stairs = layout(CHART, table(("a", MOST_STEPS, 3.0, 1, 1)))
    assert len(stairs.panels[0].line) == 2 * MOST_STEPS


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three", HOSTILE, CONTROLS)])
def test_hostile_names_are_drawn_as_text(names):
    rows = [(name, blocks, 1000.0 * blocks, 132, 9000) for name in names for blocks in (1, 133)]
    svg = draw(layout(CHART, table(*rows)), "Title <&>")
    assert "<img" not in svg
    assert svg.count(">one</p>") == 1
    assert "µs" in svg


def test_the_same_data_give_the_same_bytes():
    rows = [("a", int(blocks), 20.0, 132, 21) for blocks in np.arange(1, 300, 7)]
    one, other = (draw(layout(CHART, table(*rows)), "t") for _ in range(2))
    assert one == other
