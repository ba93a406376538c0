"""Rooflines: points, ceilings, limits of the axes, and hostile names."""

import dataclasses
import re

import pytest

from traceview.base.tables import Table
from traceview.render.charts.layout import RooflineChart, layout
from traceview.render.charts.svg import draw
from traceview.traces.analyses.roofline import ANALYSIS

CHART = ANALYSIS.charts[0]
COLUMNS = ANALYSIS.tables[0].columns
EMPTY = {column.name: None if column.nullable else 0 for column in COLUMNS}


def row(name, x, y, total=100, kind="fp32", level=60_000_000_000_000):
    return {
        **EMPTY,
        "label": name,
        "total_ns": total,
        "flop_per_byte": x,
        "achieved_flop_per_s": y,
        "flop_kind": kind,
        "peak_bytes_per_s": 4_000_000_000_000,
        "peak_flop_per_s": level,
        "bound": "memory",
        "basis": "declared",
        "beside_pct": 0.0,
    }


def table(*rows):
    return Table.from_rows(COLUMNS, rows)


def test_points_and_ceilings():
    small = row("a", 2.0, 6 * 10**12, 100)
    large = row("b", 100.0, 5 * 10**14, 300, kind="bf16", level=10**15)

    drawing = layout(CHART, table(small, large))

    assert isinstance(drawing, RooflineChart)
    assert [(p.x, p.y, p.size_fraction, p.label) for p in drawing.points] == [
        (100.0, 5e14, 0.75, "b"),
        (2.0, 6e12, 0.25, "a"),
    ]
    assert drawing.slopes == ((4e12, "memory 4,000 GB/s"),)
    assert drawing.levels == ((6e13, "fp32 60.0 TFLOP/s"), (1e15, "bf16 1,000 TFLOP/s"))
    assert drawing.left < 2.0
    assert drawing.right > 250.0
    assert drawing.bottom < 6e12
    assert drawing.top > 1e15
    assert drawing.left_out == 0


def test_rows_without_flop_or_bytes_are_left_out():
    rows = [row("a", 2.0, 10**12), row("no flop", 0.0, 0), row("no bytes", None, 5)]

    drawing = layout(CHART, table(*rows))

    assert len(drawing.points) == 1
    assert drawing.left_out == 2
    assert layout(CHART, table(*rows[1:])) is None
    assert layout(CHART, table()) is None


def test_a_point_is_drawn_without_known_ceilings():
    known = row("a", 2.0, 10**12)
    drawing = layout(CHART, table({**known, "peak_bytes_per_s": None, "peak_flop_per_s": None}))

    assert (drawing.slopes, drawing.levels) == ((), ())
    assert "<svg" in draw(drawing, "t")


@pytest.mark.parametrize("x", [1e-300, 1e300, 5e-324, -1.0])
def test_impossible_numbers_are_left_out(x):
    assert layout(CHART, table(row("a", x, 1))) is None


@pytest.mark.parametrize("x", [1e-9, 1e18])
def test_extreme_numbers_can_be_drawn(x):
    assert "<svg" in draw(layout(CHART, table(row("a", x, 1))), "t")


def test_names_stay_text():
    hostile = row("<script>$\\frac{1}{0}$</script>", 2.0, 10**12)

    svg = draw(layout(CHART, table(hostile)), "t")

    assert "<script" not in svg
    assert "&lt;script&gt;" in svg


def test_the_same_rows_give_the_same_picture():
    rows = table(*(row(f"k{i}", 2.0 + i, 10**12 * (i + 1)) for i in range(30)))
    first, second = (draw(layout(CHART, rows), "t") for _ in range(2))

    assert first == second
    assert len(layout(CHART, rows).points) == dataclasses.replace(CHART).most
    # Colours are the page's own, for light and dark.
    assert not re.search(r"#[0-9a-f]{6}", first)
