"""Tables in a terminal: without columns that say nothing, sentences on lines of their own."""

import pytest

from tests.render.example_report import a_trace
from traceview.base.tables import Column, Table, TableSpec
from traceview.render.report.document import single_ids
from traceview.render.report.text import TextOptions, table_lines
from traceview.traces.reporting import facts_of

COLUMNS = (
    Column("device_id", "int64", "GPU"),
    Column("label", "text", "kernel"),
    Column("calls", "int64", "launches"),
    Column("outliers", "int64", "how many were slow"),
    Column("evidence", "text", "what shows it", prose=True),
    Column("name", "text", "whole name"),
)
SPEC = TableSpec("kernels", "one row per kernel", COLUMNS, "device_id label calls evidence")
SENTENCE = "It was launched late, because the thread spent 291 ms outside CUDA and 17 ms in a load."


def shown(width=80, single=frozenset(), full_names=False, **cells):
    options = TextOptions(full_names=full_names)
    row = {"device_id": 1, "label": "gemm", "calls": 3, "outliers": 0, "evidence": SENTENCE}
    table = Table.from_rows(COLUMNS, [{**row, "name": "void gemm<float, (int)4>(T1)", **cells}] * 2)
    return [line.plain for line in table_lines(SPEC, table, width, single, options)]


def test_a_long_sentence_has_lines_of_its_own():
    lines = shown(60)
    assert lines[0].split() == ["device", "id", "label", "calls", "name"]
    assert " ".join(line.strip() for line in lines[2:4]) == SENTENCE
    assert all(line.startswith("    ") for line in lines[2:4])


def test_a_short_sentence_stays_in_its_column():
    assert "It was late." in shown(80, evidence="It was late.")[1].split("  ")


@pytest.mark.parametrize("width", [100, 115, 130, 160])
def test_a_sentence_beside_numbers_makes_room_for_no_further_column(width):
    lines = shown(width)
    assert all(len(line) <= width for line in lines)
    assert any(SENTENCE in line for line in lines) or width < 130


def test_zeros_and_the_only_device_say_nothing():
    heading = shown(160, frozenset({"device_id"}))[0]
    assert "outliers" not in heading
    assert "device" not in heading
    assert "outliers" in shown(160, outliers=1)[0]


def test_whole_names_on_demand():
    lines = shown(80, full_names=True, evidence="")
    assert "name" not in lines[0].split()
    assert lines[2] == "    void gemm<float, (int)4>(T1)"


def test_ids_that_are_the_same_everywhere():
    assert {"device_id", "host_id"} <= single_ids(facts_of(a_trace()))
