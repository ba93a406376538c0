"""Sums equal to the nanosecond with those that nsys itself computes."""

import csv
import io
import shutil
import sqlite3
import subprocess
from collections import defaultdict
from contextlib import closing

import pytest

from tests.conftest import GPU_RECORDINGS
from tests.oracles.brute_force import BACKTRACE_CLASS
from traceview.traces.analyses import memory_copies
from traceview.traces.analyses.kernel_share import analysis
from traceview.traces.trace.load import load

REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum")
FIGURES = {"Instances": "calls", "Num Calls": "calls", "Count": "calls"} | {
    "Total Time (ns)": "total_ns",
    "Min (ns)": "min_ns",
    "Max (ns)": "max_ns",
    "Med (ns)": "median_ns",
}
DIRECTIONS = {
    "H2D": "Host-to-Device",
    "D2H": "Device-to-Host",
    "D2D": "Device-to-Device",
    "P2P": "Peer-to-Peer",
}


@pytest.fixture(scope="module", params=GPU_RECORDINGS)
def answers(request, unpack, nsys, tmp_path_factory):
    """The trace, and nsys's rows of each report by name. nsys writes beside its input: a copy."""
    copy = tmp_path_factory.mktemp("stats") / "copy.sqlite"
    shutil.copyfile(unpack(request.param), copy)
    command = [nsys, "stats", "--format", "csv", "--force-export=false"]
    chosen = [part for report in REPORTS for part in ("--report", report)]
    done = subprocess.run([*command, *chosen, copy], capture_output=True, text=True, check=True)
    return load(unpack(request.param)), _tables(done.stdout)


def _tables(text):
    """The reports of one run, each a list of rows, in the order they were asked for."""
    blocks = text.split("Processing [")[1:]
    return {report: _rows(block) for report, block in zip(REPORTS, blocks, strict=True)}


def _rows(block):
    """No rows where nsys skipped a report for want of data."""
    lines = block.splitlines()
    heads = [number for number, line in enumerate(lines) if "Total Time (ns)" in line]
    assert heads or "SKIPPED" in block
    first = heads[0] if heads else len(lines)
    return list(csv.DictReader(io.StringIO("\n".join(lines[first:]).strip())))


def _figures(row):
    return {ours: float(row[theirs]) for theirs, ours in FIGURES.items() if theirs in row}


def test_kernels(answers):
    trace, reports = answers
    theirs = {row["Name"]: _figures(row) for row in reports["cuda_gpu_kern_sum"]}
    ours = {row["name"]: row for row in analysis.compute(trace).tables["kernels"].rows()}
    assert theirs.keys() == ours.keys()
    for name, figures in theirs.items():
        for column, value in figures.items():
            # Of an even number of calls nsys gives half nanoseconds.
            tolerance = 0.5 if column == "median_ns" else 0
            assert abs(ours[name][column] - value) <= tolerance, (name, column)


def _repeated(path):
    """Calls whose call chain is a row of its own, which nsys counts as one more call."""
    query = (
        "SELECT s.value, count(*), sum(r.end - r.start) FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
        f"JOIN StringIds s ON s.id = r.nameId WHERE r.eventClass = {BACKTRACE_CLASS} GROUP BY 1"
    )
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def test_api_calls(answers):
    trace, reports = answers
    theirs = defaultdict(lambda: [0, 0])
    for row in reports["cuda_api_sum"]:
        name = row["Name"].partition("_v")[0]
        theirs[name][0] += int(row["Num Calls"])
        theirs[name][1] += int(row["Total Time (ns)"])
    for name, calls, total_ns in _repeated(trace.path):
        theirs[name.partition("_v")[0]][0] -= calls
        theirs[name.partition("_v")[0]][1] -= total_ns
    ours = defaultdict(lambda: [0, 0])
    for row in trace.api_calls.rows():
        ours[row["name"]][0] += 1
        ours[row["name"]][1] += row["end_ns"] - row["start_ns"]
    assert ours == theirs


def test_copies_and_sets(answers):
    trace, reports = answers
    theirs = {row["Operation"]: _figures(row) for row in reports["cuda_gpu_mem_time_sum"]}
    tables = memory_copies.ANALYSIS.run(trace).tables
    ours = defaultdict(lambda: [0, 0])
    for row in tables["copies"].rows():
        ours[DIRECTIONS[row["direction"]]][0] += row["calls"]
        ours[DIRECTIONS[row["direction"]]][1] += row["total_ns"]
    for row in tables["sets"].rows():
        ours["memset"] = [row["calls"], row["total_ns"]]
    for operation, figures in theirs.items():
        name = next((n for n in DIRECTIONS.values() if n in operation), "memset")
        assert ours.pop(name) == [figures["calls"], figures["total_ns"]]
    assert not ours
