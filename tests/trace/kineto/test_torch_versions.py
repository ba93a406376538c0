"""Traces that torch 1.13, 2.1, 2.4 and 2.13 wrote of one program on a CPU."""

import json
import lzma
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

import traceview
from tests.places import DATA

TRACES = sorted((DATA / "torch").glob("*.json.xz"))


@pytest.fixture(params=TRACES, ids=lambda path: path.name.removesuffix(".json.xz"))
def path(request):
    return request.param


def events(path, *categories):
    """The complete events of some categories, with their times as the digits of the file."""
    whole = json.loads(lzma.decompress(path.read_bytes()), parse_float=Decimal)
    return [e for e in whole["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]


def test_there_are_four():
    assert [path.name for path in TRACES] == [
        f"{version}.json.xz" for version in ("1.13.1", "2.1.2", "2.13.0", "2.4.1")
    ]


def test_operators_and_ranges_are_those_of_the_file_to_the_nanosecond(path):
    trace = traceview.load(path)
    assert trace.warnings == ()
    listed = events(path, "cpu_op", "user_annotation")
    origin = int(trace.run["clock_origin_ns"])
    base = json.loads(lzma.decompress(path.read_bytes())).get("baseTimeNanoseconds", 0)
    expected = Counter(
        (e["name"], int(e["ts"] * 1000) + base - origin, int(e["dur"] * 1000)) for e in listed
    )
    names = (str(name).split(", sizes")[0] for name in trace.ranges.texts("name").decode())
    start, end = trace.ranges["start_ns"], trace.ranges["end_ns"]
    rows = zip(names, start.tolist(), (end - start).tolist(), strict=True)
    assert Counter(rows) == expected


def test_stacks_name_the_functions_of_the_program(path):
    trace = traceview.load(path)
    listed = events(path, "python_function")
    functions = {e["name"].split(": ")[-1] for e in listed if e["name"].startswith("program.py")}
    frames = trace.tables["python_frames"]
    of_program = frames.texts("file").isin(["program.py"])
    assert set(frames.texts("function").take(np.flatnonzero(of_program)).decode()) == functions
    assert "train_step" in functions


def test_the_report_finds_the_steps_that_were_profiled(path):
    report = traceview.analyze(traceview.load(path))
    assert report.verdict.steps == 3
    assert report.verdict.steps_from == "profiler-steps"
    assert not report.findings


def test_operators_take_what_torch_itself_says(path):
    """Against `profiler.key_averages()` of the same recording, in microseconds."""
    table = traceview.analyze(traceview.load(path), "steps")["steps"].tables["operators"]
    lines = path.with_name(path.name.replace(".json.xz", ".averages.tsv")).read_text().splitlines()
    averages = {name: tuple(map(float, rest)) for name, *rest in (x.split("\t") for x in lines)}
    rows = {row["operator"]: row for row in table.rows()}
    assert rows.keys() == averages.keys()
    # Up to torch 2.1 times were whole microseconds, by which operators overlap. torch takes one
    # then for the child of its neighbour, and finds less than no time in the other.
    exact = path.name.startswith(("2.4", "2.13"))
    for name, (calls, own, total) in averages.items():
        row = rows[name]
        assert row["total_ns"] / 1000 == pytest.approx(total, abs=0.01 if exact else 6 * calls)
        if exact:
            assert row["calls"] == calls
            assert row["own_ns"] / 1000 == pytest.approx(own, abs=0.01)
    assert table["share_pct"].sum() == pytest.approx(100)
