"""Upright columns: a towering one is cut and labelled; hostile names are harmless."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.render.example_report import CONTROLS, HOSTILE
from traceview.base.tables import Column, Table
from traceview.render.charts.bars import MOST_LABELS, label_ending
from traceview.render.charts.layout import layout
from traceview.render.charts.svg import draw
from traceview.traces.analyses.base import Chart

CHART = Chart("columns", "parts", "Time", "step", "part_ns", stack="part", most=400)
COLUMNS = (
    Column("step", "text", "step"),
    Column("part", "text", "part"),
    Column("part_ns", "int64", "its time"),
)


def drawn(*columns: tuple[str, dict[str, int]], chart=CHART) -> str:
    rows = [
        {"step": step, "part": part, "part_ns": time}
        for step, parts in columns
        for part, time in parts.items()
    ]
    drawing = layout(chart, Table.from_rows(COLUMNS, rows))
    assert drawing is not None
    return draw(drawing, "Time")


def heights(svg: str) -> list[float]:
    """Heights of the columns' parts; patches of the legend have a fixed one."""
    return [float(h) for h in re.findall(r'<rect x="[^>]*? height="([\d.]+)"', svg)]


def test_parts_of_a_step_are_stacked():
    svg = drawn(("a", {"busy": 30, "idle": 10}), ("b", {"busy": 30, "idle": 20}))

    assert heights(svg) == pytest.approx(
        [h * heights(svg)[0] / 30 for h in (30, 10, 30, 20)], rel=1e-3
    )
    assert "busy" in svg
    assert "idle" in svg


def test_a_towering_column_is_cut_and_labelled_with_its_height():
    svg = drawn(("a", {"busy": 90_000}), *((f"b{n}", {"busy": 30}) for n in range(6)))

    assert "↑ 90.0 µs" in svg
    # The others keep most of the height.
    assert heights(svg)[1] == heights(svg)[-1] > 100


@pytest.mark.parametrize("heights_of_end", [[300] * 2, range(300, 320)])
def test_a_level_that_stays_high_is_not_cut(heights_of_end):
    """Memory in use: what is high is the answer, and heights would be written over each other."""
    low = [(f"a{n}", {"busy": 30}) for n in range(100)]
    svg = drawn(*low, *((f"b{n}", {"busy": each}) for n, each in enumerate(heights_of_end)))
    assert "↑" not in svg
    assert heights(svg)[-1] >= 9.99 * heights(svg)[0]


def test_of_neighbours_that_tower_the_highest_is_labelled():
    far = [("a0", {"busy": 900}), ("a1", {"busy": 990}), ("a2", {"busy": 800})]
    svg = drawn(*far, *((f"b{n}", {"busy": 30}) for n in range(97)))
    assert re.findall(r"↑ [^<]*", svg) == ["↑ 990 ns"]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("step_11", "step_11"),
        ("epoch_0/batch_5", "…/batch_5"),
        ("ProfilerStep#1234", "…ilerStep#1234"),
    ],
)
def test_a_path_is_shortened_at_a_slash(label, shown):
    assert label_ending(label) == shown


def test_two_of_equal_height_are_not_cut():
    assert "↑" not in drawn(("a", {"busy": 900}), ("b", {"busy": 900}), ("c", {"busy": 800}))


def test_only_some_of_many_steps_are_labelled():
    svg = drawn(*((f"step_{n}", {"busy": 30}) for n in range(100)))

    named = re.findall(r">(step_\d+)<", svg)
    assert named[0] == "step_0"
    assert len(named) <= MOST_LABELS


def test_hostile_names_stay_names():
    svg = drawn((HOSTILE, {HOSTILE: 3}), (CONTROLS, {"$\\frac$": 4}), ("漢字", {"_": 5}))

    ElementTree.fromstring(svg)
    assert "<script" not in svg


def test_columns_without_parts_have_one_color():
    plain = Chart("columns", "parts", "Time", "step", "part_ns")
    svg = drawn(("a", {"busy": 3}), ("b", {"busy": 4}), chart=plain)

    assert set(re.findall(r'<rect [^>]*class="([^"]*)"', svg)) == {"bar"}
