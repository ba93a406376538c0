"""Bar charts and spans are laid out for any table, whatever it holds."""

import re

import numpy as np
import pytest

from tests.render.example_report import (
    CAUSES,
    CHARTS,
    CONTROLS,
    HOSTILE,
    SHARES,
    STEP_CHART,
    STEPS,
    causes,
    share_rows,
    steps,
)
from traceview.base.tables import Column, Table
from traceview.render.base.code import MEANINGS
from traceview.render.charts import figure
from traceview.render.charts.bars import MOST_SERIES, Bar
from traceview.render.charts.layout import layout
from traceview.render.charts.marks import series_class
from traceview.render.charts.svg import draw
from traceview.traces.analyses.base import Chart

BARS, STACKED = CHARTS


def test_one_bar_per_row_with_its_value():
    drawing = layout(BARS, share_rows(["gemm", "softmax"]))
    assert drawing is not None
    assert drawing.labels == ("gemm", "softmax")
    assert drawing.row_texts == ("12.3 ms", "6.17 ms")
    assert drawing.bars == (Bar(0, 0.0, 12_345_678.0, ""), Bar(1, 0.0, 6_172_839.0, ""))


def test_stacked_bars_add_up_and_leave_out_what_is_zero():
    drawing = layout(STACKED, causes())
    assert drawing is not None
    assert drawing.series == ("sync-drain", "launch-late")
    assert drawing.bars[1] == Bar(0, 800_000.0, 300_000.0, "launch-late")
    assert drawing.row_texts == ("1.10 ms", "2.20 ms")


def test_more_series_than_colors_become_other():
    rows = [{"device": "GPU 0", "cause": f"c{i}", "idle_ns": 100 - i} for i in range(9)]
    drawing = layout(STACKED, Table.from_rows(CAUSES.columns, rows))
    assert drawing is not None
    assert len(drawing.series) == MOST_SERIES
    assert drawing.series[-1] == "other"
    assert sum(bar.length for bar in drawing.bars) == sum(100 - i for i in range(9))


def test_spans_begin_at_zero_and_pair_up():
    drawing = layout(STEP_CHART, steps())
    assert drawing is not None
    assert drawing.series == ("CPU", "GPU")
    assert drawing.bars[0] == Bar(0, 0.0, 900_000.0, "CPU")
    assert drawing.bars[4] == Bar(0, 100_000.0, 1_900_000.0, "GPU", lower=True)
    assert [bar.row for bar in drawing.bars if bar.lower] == [0, 1, 2]


def test_labels_that_shorten_alike_stay_apart():
    devices = [f"{'x' * 30}{kind}{'y' * 30}" for kind in "ab"]
    rows = [{"device": name, "cause": "c", "idle_ns": 5} for name in devices]
    drawing = layout(STACKED, Table.from_rows(CAUSES.columns, rows))
    assert drawing is not None
    assert len(set(drawing.labels)) == 2
    assert [bar.length for bar in drawing.bars] == [5.0, 5.0]


def test_rows_beyond_the_limit_are_counted():
    drawing = layout(BARS, share_rows([f"k{i}" for i in range(40)]))
    assert drawing is not None
    assert len(drawing.labels) == 12
    assert drawing.left_out == 28


def test_an_empty_table_has_no_chart():
    assert layout(BARS, Table.empty(SHARES.columns)) is None
    assert layout(STACKED, Table.empty(CAUSES.columns)) is None
    assert layout(STEP_CHART, Table.empty(STEPS.columns)) is None
    idle = [{"device": "GPU 0", "cause": "none", "idle_ns": 0}]
    assert layout(STACKED, Table.from_rows(CAUSES.columns, idle)) is None


def test_damaged_values_have_no_bar():
    table = share_rows(["gemm", "softmax", "copy"])
    table = table.with_columns(share_pct=np.array([np.nan, np.inf, 50.0]))
    drawing = layout(Chart("bars", "shares", "t", "short_name", "share_pct"), table)
    assert drawing is not None
    assert drawing.labels == ("copy",)
    assert [bar.length for bar in drawing.bars] == [50.0]


def test_hostile_names_are_drawn_as_text():
    drawing = layout(BARS, share_rows([HOSTILE, CONTROLS, "漢字", "$\\frac$", "_", ""]))
    assert drawing is not None
    svg = draw(drawing, "Title <&>")
    assert "$\\frac$" in svg
    assert 'aria-label="Title &lt;&amp;&gt;"' in svg
    assert "<img" not in svg


def test_a_meaning_has_its_colour_in_every_chart():
    drawing = layout(STACKED, causes())
    assert drawing is not None
    svg = draw(drawing, "t")
    assert 'class="c-sync-drain"' in svg
    assert 'class="c-launch-late"' in svg
    assert not re.search("#[0-9a-f]{6}|style=", svg)


def test_a_bar_has_a_tooltip():
    drawing = layout(STACKED, causes())
    assert drawing is not None
    assert "<title>GPU 1, sync-drain: 1.60 ms</title>" in draw(drawing, "t")


@pytest.mark.parametrize(("column", "kind"), [("device_id", "GPU"), ("process_id", "process")])
def test_rows_of_one_name_are_told_apart(column, kind):
    chart = Chart("bars", "classes", "GPU time", "class", "total_ns")
    columns = (
        Column(column, "int64", "whose"),
        Column("class", "text", "class"),
        Column("total_ns", "int64", "time"),
    )
    rows = [{column: owner, "class": "gemm", "total_ns": 9 - owner} for owner in (0, 1)]
    two, one = (layout(chart, Table.from_rows(columns, part)) for part in (rows, rows[:1]))
    assert two.labels == (f"gemm, {kind} 0", f"gemm, {kind} 1")
    assert draw(two, "GPU time").count('class="c-gemm"') == 2
    assert one.labels == ("gemm",)


def test_a_figure_has_the_colours_of_the_page():
    idle = series_class("idle: launch-late", ("busy", "idle: launch-late"))
    assert figure.color_of(idle) == MEANINGS["launch-late"][0]
    assert figure.color_of(series_class("somewhere", ("else", "somewhere"))) == figure.SERIES[1]
