"""The benchmarks measure work that was done, and add it up right."""

import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from benchmarks.make_trace import make_trace
from benchmarks.trace_shapes import SHAPES
from tests.places import REPOSITORY
from traceview.trace.load import load

# The benchmarks' programs import each other from there; nobody installs them.
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import picture
import ranks
import report
import results
import tools

KERNELS = 500


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    def trace(shape):
        path = tmp_path_factory.mktemp("made") / "run.sqlite"
        make_trace(path, KERNELS, SHAPES[shape], seed=3)
        return path

    return {shape: trace(shape) for shape in ("plain", "dense")}


def test_a_dense_trace_has_ten_more_ranges_and_a_mark_a_kernel(made):
    plain, dense = (load(made[kind]).ranges for kind in ("plain", "dense"))
    assert len(dense) - len(plain) == (SHAPES["dense"].ranges_per_launch + 1) * KERNELS
    assert Counter(dense.texts("kind").decode())["mark"] == KERNELS


def test_all_ranges_of_a_dense_trace_nest(made):
    with sqlite3.connect(made["dense"]) as connection:
        query = (
            "SELECT globalTid, start, end FROM NVTX_EVENTS WHERE end NOT NULL ORDER BY 1, 2, -end"
        )
        rows = connection.execute(query).fetchall()
    connection.close()
    opened, deepest = [], 0
    for tid, start, end in rows:
        while opened and (opened[-1][0] != tid or opened[-1][1] <= start):
            opened.pop()
        assert not opened or end <= opened[-1][1]
        opened.append((tid, end))
        deepest = max(deepest, len(opened))
    assert deepest == SHAPES["dense"].ranges_per_launch + 4


def test_traceview_and_pandas_agree_with_sqlite(made):
    pytest.importorskip("pandas")
    expected = tools.true_sums(made["plain"])
    assert sum(calls for calls, _ in expected.values()) == KERNELS
    for way in tools.ways(made["plain"], None, None):
        if way.sums:
            assert report.check(made["plain"], way, expected) == f"{len(expected)} equal"


def test_a_tool_that_is_wrong_ends_the_benchmark(made):
    way = next(way for way in tools.ways(made["plain"], None, None) if way.name == tools.JSON)
    with pytest.raises(tools.WrongError, match="is wrong about 1 kernels, such as ghost"):
        report.check(made["plain"], way, {**tools.true_sums(made["plain"]), "ghost": (1, 1)})


def nsys_output(*blocks: str) -> str:
    return "".join(f"Processing [x.sqlite] with [{block}" for block in blocks)


def test_a_report_that_nsys_skips_ends_the_benchmark():
    head = "a.py]...\n\nTime (%),Total Time (ns),Instances,Name\n1.0,70,2,gemm\n"
    whole = nsys_output(*[head] * len(tools.NSYS_REPORTS))
    assert tools.nsys_sums([whole]) == {"gemm": (2, 70)}
    skipped = nsys_output(*[head] * (len(tools.NSYS_REPORTS) - 1), "b.py]...\nSKIPPED: no table\n")
    with pytest.raises(tools.WrongError, match="did not make nvtx_kern_sum"):
        tools.nsys_sums([skipped])
    with pytest.raises(ValueError, match="shorter"):
        tools.nsys_sums([nsys_output(head)])


def found():
    """As a benchmark would leave it: another tool takes twice as long, and is left out at last."""

    def tool(name, *seconds):
        figures = {"wall_s": list(seconds), "cpu_s": [1.0], "peak_mib": [10.0, 20.0]}
        return {"tool": name, **figures, "sums": "96 equal"}

    def trace(kernels, seconds, *tools_, shape="plain"):
        ours = tool(tools.OURS, seconds, seconds + 9, seconds - 0.01)
        beside = {"file_bytes": kernels * 200, "cat_s": [0.1], "numpy_s": [0.2]}
        return {"kernels": kernels, "shape": shape, **beside, "tools": [ours, *tools_]}

    machine = {"cpu": "a CPU", "cores": 2, "memory_gb": 24, "system": "Linux", "load_at_start": 0.0}
    versions = dict.fromkeys(("traceview", "python", "numpy", "pandas", "sqlite", "nsys"), "1.0")
    return {
        "machine": {**machine, **versions, "nsys_ai": None},
        "runs": 3,
        "help_s": [0.07, 0.05, 0.06],
        "traces": [
            trace(1_000, 0.5, tool(tools.NSYS, 1.0)),
            trace(100_000, 0.7, tool(tools.NSYS, 1.4)),
            trace(1_000_000, 2.9),
            trace(5_000, 0.6, shape="dense"),
        ],
    }


def test_results_are_told_as_tables():
    told = results.markdown(found())
    assert "2 cores of a CPU, 24 GB, Linux; load 0.0 at the start; traceview 1.0" in told
    assert "nsys-ai" not in told
    assert "`traceview --help` takes 0.06 s." in told
    assert "| 1,000,000 | traceview report | 2.90 | 2.89 | 1.00 | 20 | 96 equal |" in told
    assert "| 100,000 | 2.0 |\n| 1,000,000 |  |\n| 5,000 dense |  |" in told
    assert "| 100,000 | 7.00 | 2.00 |\n| 1,000,000 | 2.90 | 2.40 |\n\n" in told
    assert "from 100,000 kernels on: whole 2.41, less start-up 1.20." in told
    assert "| 1,000,000 | 200 | 0.100 | 0.200 | 2.90 | 69 | 29 |" in told


def test_the_picture_is_one_and_always_the_same():
    drawn = picture.draw(found())
    assert drawn == picture.draw(found())
    words = {text.text for text in ElementTree.fromstring(drawn).iter() if text.text}
    assert "traceview report: 2.9 s for 1,000,000" in words
    assert "nsys stats (6 reports): 1.4 s for 100,000" in words


def test_a_tool_that_would_take_too_long_is_left_out():
    traces = found()["traces"][:2]
    nsys, ours = tools.Way(tools.NSYS, ()), tools.Way(tools.JSON, ())
    assert report._bearable(traces, nsys, 1_000_000, 14.1)
    assert not report._bearable(traces, nsys, 1_000_000, 13.9)
    assert report._bearable([], nsys, 1_000_000, 1.0)
    # Once left out, it stays away from what is longer still.
    assert not report._bearable([*traces, found()["traces"][2]][2:], nsys, 10_000_000, 1e9)
    assert report._bearable(traces, ours, 10_000_000, 0.1)


def test_a_job_of_ranks_has_one_that_the_report_names(tmp_path):
    size = ranks.JobSize(3, 960)
    ranks.write_job(tmp_path / "job", size)
    ran = ranks.timed(ranks.report(str(tmp_path / "job"), "--json", "--jobs", "1"))
    ranks.check(ran.out, size)
    assert ran.peak_mib > 50
    assert ran.cpu_s > 0
    with pytest.raises(SystemExit):
        ranks.check(ran.out, ranks.JobSize(5, 960))


COUNTS_RANGES = """
import sys
sys.path[:0] = ["benchmarks", "."]
import alternating_overhead as measured
import torch
opened = []
measured.nvtx_ranges._carrier = (opened.append, str)
measured.nvtx_ranges.choose = lambda: True
ranges = [measured.Ranges(torch, mode) for mode in ("auto", "modules")]
step = measured.launch_bound("cpu")
for each, on in ((ranges[0], False), (ranges[0], True), (ranges[1], True), (ranges[1], False)):
    each.turn(on)
    step(), opened.clear(), step()
    print(len(opened))
    each.turn(False)
"""


def test_ranges_are_switched_on_and_off_inside_a_process():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", COUNTS_RANGES], capture_output=True, text=True, cwd=REPOSITORY
    )

    off, auto, modules, off_again = map(int, done.stdout.split())

    assert (off, off_again) == (0, 0), done.stderr
    # zero_grad, step, forward, backward, optimizer; modules inside the model as well.
    assert 4 <= auto < modules


def test_the_interval_of_a_cost_holds_its_median():
    import alternating_overhead as measured

    median, low, high = measured.interval([1.02, 1.03, 1.04, 1.03, 1.02, 1.05])

    assert median == pytest.approx(3.0)
    assert 2.0 <= low <= median <= high <= 5.0
