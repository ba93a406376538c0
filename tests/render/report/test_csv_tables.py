"""CSV: every row and column, and nothing that a spreadsheet would run."""

import csv
import io

import pytest

from tests.render.example_report import CONTROLS, a_report
from traceview.base.tables import Column, Table
from traceview.render.report.json import csv_tables, csv_text, safe_cell
from traceview.traces.analyses.base import Result


def parsed(pieces):
    return list(csv.DictReader(io.StringIO("".join(pieces))))


def test_every_table_is_there_whole():
    report = a_report()
    files = {name: parsed(pieces) for name, pieces in csv_tables(report)}
    assert len(files["findings.csv"]) == len(report.findings)
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if isinstance(outcome, Result):
            for name, table in outcome.tables.items():
                rows = files[f"{analysis.name}.{name}.csv"]
                assert len(rows) == len(table)
                for row, want in zip(rows, table.rows(), strict=True):
                    assert [*row] == [*want]
                    numbers = {k: v for k, v in want.items() if isinstance(v, int | float)}
                    assert {key: float(row[key]) for key in numbers} == numbers


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(1)", "\t=1", "＝1"])
def test_a_text_is_never_a_formula(name):
    assert safe_cell(name).startswith("'")


def test_numbers_stay_numbers_and_absent_is_empty():
    columns = (
        Column("delta_ns", "int64", "difference"),
        Column("share_pct", "float64", "share", nullable=True),
        Column("name", "text", "name", nullable=True),
    )
    table = Table.from_rows(
        columns,
        [
            {"delta_ns": -5, "share_pct": None, "name": None},
            {"delta_ns": 7, "share_pct": 0.1, "name": 'a,"b"\n;'},
        ],
    )
    assert "".join(csv_text(table)) == 'delta_ns,share_pct,name\n-5,,\n7,0.1,"a,""b""\\n;"\n'


def test_control_characters_and_megabytes():
    shown = safe_cell(CONTROLS + "x" * 10_000_000)
    assert shown.isprintable()
    assert len(shown) < 32_767
