"""Answers about a long trace equal those of plain loops over its rows.

Shortcuts for many rows (direct addressing, keys of several columns in one number, texts made when
they are shown) do not come into play in small traces. `TRACEVIEW_TEST_KERNELS=1000000` asks for
longer ones, `TRACEVIEW_TEST_TRACE=PATH` for one that benchmarks/traces/generator.py has made.

Compared, row by row or as sums of all rows:

| analysis | table | columns |
|---|---|---|
| kernel-share | kernels | name, calls, total, min, max, median, share |
| | ranges, ranges_inclusive | range_path, short_name, calls, total |
| | range_patterns | range_pattern, instances, calls, total, per_instance |
| gpu-idle | devices | span, busy, idle |
| | causes, late | gaps and idle time by GPU and cause; the sum of late is that of launch-late |
| | gaps | the longest: GPU, start, duration, cause |
| run-ahead | streams, devices | operations, queue waits, depths |
| | ranges | CPU and GPU times of each step, lead, steps ahead, operations |
| steps | steps, parts | duration, GPU busy and idle, CPU time, launches; the sum of parts |
| sync-stalls | calls, sites | calls, waits, benign, idle after, by API |
| launch-overhead | calls | calls, total, median, max, exposed, first launches |
| memory-copies | copies | direction, host memory, calls, bytes, total |
| wave-quantization | kernels | calls, total, blocks, blocks an SM, waves, tail idle and tail loss |
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.traces.generator import make_trace
from benchmarks.traces.shapes import Shape
from tests.oracles import brute_force_scale
from tests.oracles.test_brute_force import (
    Both,
    calls_agree,
    causes_agree,
    copies_agree,
    devices_agree,
    kernels_agree,
    near,
    queues_agree,
    waits_add_up,
    waits_agree,
)
from traceview.traces.analyses import launch_overhead, memory_copies, run_ahead
from traceview.traces.analyses import steps as steps
from traceview.traces.analyses.gpu_idle import analysis as gpu_idle
from traceview.traces.analyses.kernel_share import analysis as kernel_share
from traceview.traces.analyses.wave_quantization import analysis as wave_quantization

pytestmark = pytest.mark.slow

KERNELS = int(os.environ.get("TRACEVIEW_TEST_KERNELS", "20000"))
GIVEN = os.environ.get("TRACEVIEW_TEST_TRACE")
# One stream never runs kernels at once.
SHAPES = {
    "one-stream": Shape("one stream", processes=1, streams=1),
    "two-processes": Shape("two processes"),
    "dense": Shape("dense ranges", processes=1, ranges_per_launch=10, marks=True),
}


@dataclass
class Long(Both):
    path: Path


@pytest.fixture(scope="module", params=["given"] if GIVEN else SHAPES)
def long(request, tmp_path_factory):
    if GIVEN:
        path = Path(GIVEN)
    else:
        path = tmp_path_factory.mktemp("long") / "long.sqlite"
        shape = SHAPES[request.param]
        make_trace(path, KERNELS // (4 if shape.marks else 1), shape, seed=7)
    both = Both.of(path)
    return Long(both.trace, both.recording, path)


@pytest.mark.parametrize(
    "agree",
    [
        kernels_agree,
        calls_agree,
        copies_agree,
        devices_agree,
        causes_agree,
        queues_agree,
        waits_agree,
        waits_add_up,
    ],
)
def test_what_small_recordings_are_held_to(long, agree):
    agree(long)


def test_ranges(long):
    theirs = brute_force_scale.kernels_by_range(long.recording)
    tables = long.tables(kernel_share)
    ours = {
        (row["range_path"], row["short_name"]): (row["calls"], row["total_ns"])
        for row in tables["ranges"].rows()
    }
    assert len(ours) == len(tables["ranges"]) > len(long.trace.kernels) // 4
    assert ours == theirs
    assert brute_force_scale.around(theirs) == {
        row["range_path"]: [row["calls"], row["total_ns"]]
        for row in tables["ranges_inclusive"].rows()
    }
    patterns = brute_force_scale.range_patterns(long.recording, theirs)
    columns = ("calls", "total_ns", "instances", "per_instance_ns")
    assert patterns == {
        row["range_pattern"]: {name: row[name] for name in columns}
        for row in tables["range_patterns"].rows()
    }


def test_the_longest_gaps(long):
    table = long.tables(gpu_idle)["gaps"]
    names = ("device_id", "start_ns", "duration_ns", "cause")
    ours = [tuple(row[name] for name in names) for row in table.rows()]
    theirs = brute_force_scale.longest_gaps(long.recording, len(table))
    assert [gap[2] for gap in ours] == [gap[2] for gap in theirs]
    # Of several as long as the last, which are there is not told.
    last = ours[-1][2]
    assert {gap for gap in ours if gap[2] > last} == {gap for gap in theirs if gap[2] > last}


def test_how_far_the_cpu_is_ahead(long):
    rows = list(run_ahead.ANALYSIS.compute(long.trace).tables["ranges"].rows())
    theirs = brute_force_scale.leads(long.recording)
    assert len(rows) == len(theirs) > len(long.trace.kernels) // 100
    for row in rows:
        figures = theirs[row["process_id"], row["cpu_start_ns"]]
        assert {name: row[name] for name in figures} == figures


def test_steps(long):
    tables = long.tables(steps)
    theirs = brute_force_scale.durations(long.recording)
    rows = list(tables["steps"].rows())
    assert len(rows) == len(theirs)
    for row in rows:
        figures = theirs[row["process_id"], row["cpu_start_ns"]]
        assert {name: row[name] for name in figures} == figures
    whole: dict[str, int] = defaultdict(int)
    for row in tables["parts"].rows():
        whole[row["step"]] += row["part_ns"]
    assert whole == {row["step"]: row["duration_ns"] for row in rows}


def test_launch_overhead(long):
    rows = {
        row["api"]: row for row in launch_overhead.ANALYSIS.run(long.trace).tables["calls"].rows()
    }
    theirs = brute_force_scale.launch_overhead(long.recording)
    assert rows.keys() == theirs.keys()
    for api, figures in theirs.items():
        assert rows[api]["queue_full_ns"] == 0
        for name, value in figures.items():
            assert near(rows[api][name], value) if name == "median_ns" else rows[api][name] == value


def test_copies_by_kind(long):
    columns = ("calls", "bytes", "total_ns")
    assert brute_force_scale.copies_by_kind(long.path) == {
        (row["direction"], row["host_memory"]): {name: row[name] for name in columns}
        for row in memory_copies.ANALYSIS.run(long.trace).tables["copies"].rows()
    }


def test_tails_of_waves(long):
    names = ("device_id", "name", "grid", "block")
    ours = {
        tuple(row[name] for name in names): row
        for row in long.tables(wave_quantization)["kernels"].rows()
    }
    theirs = brute_force_scale.waves(long.path)
    assert ours.keys() == theirs.keys()
    for key, figures in theirs.items():
        for name, value in figures.items():
            exact = not isinstance(value, float)
            assert ours[key][name] == (value if exact else pytest.approx(value, abs=1e-9)), name


@pytest.mark.skipif(bool(GIVEN), reason="kernels of a given trace may all run at once")
@pytest.mark.parametrize("long", ["one-stream"], indirect=True)
def test_tails_are_claimed_where_kernels_run_alone(long):
    assert any(row["tail_loss_ns"] for row in brute_force_scale.waves(long.path).values())
