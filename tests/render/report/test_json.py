"""The published JSON: exactly these keys, always valid."""

import json
import math

import numpy as np
import pytest

from tests.render.example_report import CONTROLS, HOSTILE, a_long_report, a_report, a_trace
from traceview.base.findings import Finding
from traceview.base.tables import Column, Keep, Table, TableSpec
from traceview.render.document import MOST_ROWS
from traceview.render.json import json_pieces, render_json
from traceview.traces.analyses.base import Analysis, Result
from traceview.traces.reporting import analyze


def document(report):
    def no_constant(text):
        raise AssertionError(f"{text} is not JSON")

    return json.loads(render_json(report, "1.2.3"), parse_constant=no_constant)


def test_top_level_keys():
    parsed = document(a_report())
    assert list(parsed) == [
        "schema_version",
        "traceview_version",
        "trace",
        "analyses",
        "findings",
        "plan",
        "verdict",
        "scoreboard",
        "run_time",
    ]
    assert parsed["schema_version"] == 1
    assert parsed["traceview_version"] == "1.2.3"


def test_trace():
    parsed = document(a_report())["trace"]
    expected = {
        "path": "/data/run 1.sqlite.xz",
        "recorder": "nsys",
        "recorder_version": "2025.3.2.0",
        "export_schema_version": "3.20.3",
        "duration_ns": 0,
        "gpus": [
            {
                "host_id": 0,
                "device_id": 0,
                "name": "NVIDIA H200",
                "compute_capability": "9.0",
                "sm_count": 132,
            }
        ],
        "processes": [{"host_id": 0, "process_id": 4242, "name": "python3"}],
        "row_counts": {"kernels": 0, "ranges": 0, "threads": 0, "devices": 1, "processes": 1},
    }
    assert {key: parsed[key] for key in expected} == expected
    assert parsed["selection"] == {"ranges": [], "exclude_ranges": ["step_[01]"]}


def test_keys_of_answered_and_skipped_analyses():
    parsed = document(a_report(["gemm", "softmax"]))["analyses"]
    assert list(parsed) == ["share-of-all", "step-lead", "copies"]
    shares = parsed["share-of-all"]
    assert list(shares) == ["status", "title", "question", "tables", "summary", "notes"]
    assert shares["status"] == "ok"
    assert shares["summary"] == {"kernel_ns": 12_345_678, "busy_pct": 97.25, "absent_bytes": None}
    assert shares["tables"]["errors"] == []
    assert shares["tables"]["shares"][1] == {
        "name": "void softmax<float, 4>(float const*, float*)",
        "short_name": "softmax",
        "calls": 1_001,
        "total_ns": 6_172_839,
        "mean_ns": None,
        "bytes": None,
        "share_pct": 30.0,
    }
    assert parsed["copies"]["status"] == "skipped"
    assert set(parsed["copies"]) == {"status", "reason", "remedy"}


def test_findings_come_worst_first():
    parsed = document(a_report())["findings"]
    assert parsed[0] == {
        "analysis": "step-lead",
        "severity": "high",
        "message": "1.00 ms waits",
        "action": "Act.",
        "time_at_stake_ns": 1_000_000,
        "share_of_step_pct": None,
        "subject": {"kind": "recording", "name": "", "file": None, "line": None},
        "evidence": {
            "analysis": "step-lead",
            "table": None,
            "row": {},
            "start_ns": None,
            "end_ns": None,
            "basis": None,
            "values": {},
        },
        "forecast": None,
    }
    assert [f["severity"] for f in parsed] == ["high", "medium", "medium", "low", "info"]
    assert [f["time_at_stake_ns"] for f in parsed[1:3]] == [3_000_000, 2_000_000]


def test_integers_stay_integers():
    text = render_json(a_report(), "1")
    assert '"total_ns": 12345678,' in text
    assert '"time_at_stake_ns": 3000000,\n' in text


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS, "x" * 10_000_000, "\u2028 漢字 \x7f"])
def test_names_are_whole_and_valid(name):
    text = render_json(a_report([name]), "1")
    assert text.isascii()
    parsed = json.loads(text)["analyses"]["share-of-all"]["tables"]["shares"][0]["short_name"]
    assert parsed == name.replace("\ud800", "\ufffd")


def test_nan_and_infinity_are_null():
    spec = TableSpec("odd", "one row per number", (Column("rate", "float64", "", True),), "rate")
    table = Table(spec.columns, {"rate": np.array([math.nan, math.inf, -math.inf, 1.5])})
    result = Result(
        {"odd": table},
        (Finding("info", "m", "a", np.int64(2**62)),),
        {"nothing_pct": math.nan, "flag": np.bool_(True)},
    )
    odd = Analysis("odd", "Odd", "?", (), (spec,), lambda trace: result)
    parsed = document(analyze(a_trace(), analyses=[odd]))
    assert [row["rate"] for row in parsed["analyses"]["odd"]["tables"]["odd"]] == [None] * 3 + [1.5]
    assert parsed["analyses"]["odd"]["summary"] == {"nothing_pct": None, "flag": True}
    assert parsed["findings"][0]["time_at_stake_ns"] == 2**62


def places(report, most_rows):
    return json.loads(render_json(report, "1", most_rows))["analyses"]["places"]


def test_a_long_table_has_its_first_rows_and_sums_of_the_others():
    parsed = places(a_long_report(12), 10)
    assert [row["place"] for row in parsed["tables"]["places"]] == [f"place {n}" for n in range(10)]
    assert parsed["left_out"] == {
        "places": {"rows": 2, "kept": "the first", "calls": 6, "idle_ns": 2_000}
    }
    assert list(parsed)[:5] == ["status", "title", "question", "tables", "left_out"]


@pytest.mark.parametrize("rows", [0, 1, 10])
def test_a_whole_table_has_no_left_out(rows):
    parsed = places(a_long_report(rows), 10)
    assert len(parsed["tables"]["places"]) == rows
    assert "left_out" not in parsed


@pytest.mark.parametrize("greatest", [True, False])
def test_a_table_in_order_of_time_keeps_the_rows_of_the_greatest_or_least_value(greatest):
    report = a_long_report(35, Keep("worth_pct", greatest))
    every = places(report, None)["tables"]["places"]
    parsed = places(report, 6)
    worth = {r["place"]: r["worth_pct"] for r in every if r["worth_pct"] is not None}
    best = sorted(worth, key=lambda place: worth[place] * (-1 if greatest else 1))[:6]
    listed = [row["place"] for row in parsed["tables"]["places"]]
    assert set(listed) == set(best)
    assert listed == [row["place"] for row in every if row["place"] in best]
    which = "greatest" if greatest else "least"
    assert parsed["left_out"]["places"]["kept"] == f"those of the {which} worth_pct"
    assert parsed["left_out"]["places"]["calls"] == 3 * 29


def test_ten_thousand_rows_unless_all_are_requested():
    report = a_long_report(MOST_ROWS + 1)
    assert len(document(report)["analyses"]["places"]["tables"]["places"]) == MOST_ROWS
    assert len(places(report, None)["tables"]["places"]) == MOST_ROWS + 1


def test_a_long_document_comes_in_pieces():
    """No piece holds more than a part of a table."""
    report = a_long_report(70_000)
    parts = list(json_pieces(report, "1", None))
    whole = "".join(parts)
    assert whole == render_json(report, "1", None)
    assert max(map(len, parts)) < len(whole) / 3
    parsed = json.loads(whole)["analyses"]["places"]["tables"]["places"]
    assert [row["place"] for row in parsed] == [f"place {n}" for n in range(70_000)]
