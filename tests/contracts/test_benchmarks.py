"""The benchmarks measure work that was done, and add it up right."""

import json
import os
import signal
import sqlite3
import sys
import xml.etree.ElementTree as ElementTree
from argparse import Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Timer, get_ident

import numpy as np
import pytest

from benchmarks.readers import kineto_trace
from benchmarks.recording_overhead import ranges_and_samples
from benchmarks.report import compared_tools, machine, rank_jobs, result_tables, tool_comparison
from benchmarks.traces.generator import make_trace
from benchmarks.traces.shapes import SHAPES
from tests.headless.forked_python import run_python
from tests.places import REPOSITORY
from traceview.traces.trace.load import load

pytestmark = pytest.mark.programs

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


def test_traceview_and_pandas_agree_with_sqlite(made, tmp_path):
    pytest.importorskip("pandas")
    expected = compared_tools.true_sums(made["plain"])
    assert sum(calls for calls, _ in expected.values()) == KERNELS
    for way in compared_tools.ways(made["plain"], None, None):
        if way.sums:
            assert tool_comparison.measure(made["plain"], way, tmp_path).cpu_s > 0
            assert tool_comparison.check(way, tmp_path, expected) == f"{len(expected)} equal"


def test_a_trace_of_torch_profiler_has_the_sums_of_its_lines(tmp_path):
    trace = tool_comparison.made(tmp_path, 1_000, "kineto")
    expected = compared_tools.true_sums(trace)
    assert sum(calls for calls, _ in expected.values()) == 1_000
    assert trace.read_text().count('"ph": "X"') == 3_000
    kineto_trace.make(tmp_path / "stacks.json", 0, 12_000)
    assert compared_tools.true_sums(tmp_path / "stacks.json") == expected
    by_name = {way.name: way for way in compared_tools.ways(trace, "nsys", "nsys-ai")}
    assert list(by_name) == [
        compared_tools.OURS,
        compared_tools.JSON,
        compared_tools.HTML,
        compared_tools.JSON_LOAD,
    ]
    for name in (compared_tools.JSON, compared_tools.JSON_LOAD):
        tool_comparison.measure(trace, by_name[name], tmp_path)
        assert tool_comparison.check(by_name[name], tmp_path, expected) == f"{len(expected)} equal"


def test_a_tool_that_is_wrong_has_no_time(made, tmp_path):
    (tmp_path / "0").write_text('{"gemm": [1, 5], "ghost": [1, 1]}')
    way = compared_tools.Way("a tool", (("cat", str(tmp_path / "0")),), compared_tools.printed_sums)
    with pytest.raises(
        compared_tools.WrongError, match="a tool is wrong about 1 kernels, such as ghost"
    ):
        tool_comparison.check(way, tmp_path, {"gemm": (1, 5)})
    with ThreadPoolExecutor() as apart:
        (row,) = tool_comparison.measured(apart, made["plain"], [way], 2, 60.0)
        assert row["wrong"].startswith("a tool is wrong about")
        assert tool_comparison.unusable({"traces": [{"tools": [row]}]}) == [row["wrong"]]
        slow = compared_tools.Way("slow", (("sleep", "0.01"), ("sleep", "60")))
        brief = compared_tools.Way("brief", (("true",),))
        row, other = tool_comparison.measured(apart, made["plain"], [slow, brief], 2, 0.2)
        assert row == {"tool": "slow", "left_out": "over 0 s"}
        assert len(other["wall_s"]) == 2
    assert result_tables.markdown({**found(), "traces": [{**found()["traces"][0], "tools": [row]}]})


def test_a_tool_that_fails_is_not_called_wrong(made):
    way = compared_tools.Way("broken", (("false",),))
    with ThreadPoolExecutor() as apart:
        (row,) = tool_comparison.measured(apart, made["plain"], [way], 2, 60.0)
    assert row == {"tool": "broken", "failed": "false ended with 1"}
    results = {**found(), "traces": [{**found()["traces"][0], "tools": [row]}]}
    assert tool_comparison.unusable(results) == ["false ended with 1"]
    assert "| 1,000 | broken |  | failed |" in result_tables.markdown(results)


def test_an_interrupted_run_ends_its_process(tmp_path):
    printed = tmp_path / "printed"
    interrupt = Timer(0.5, signal.pthread_kill, (get_ident(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        tool_comparison.run(("sh", "-c", "echo $$; sleep 60"), printed)
    with pytest.raises(ProcessLookupError):
        os.kill(int(printed.read_text("utf-8")), 0)


def test_the_others_get_a_copy_that_is_removed(made):
    way = next(
        w
        for w in compared_tools.ways(made["plain"], None, "nsys-ai")
        if w.name == compared_tools.NSYS_AI
    )
    compared_tools.prepare(made["plain"], way)
    way.cache.mkdir()
    with sqlite3.connect(way.copy) as connection:
        assert len(connection.execute("SELECT * FROM ENUM_CUPTI_SYNC_TYPE").fetchall()) == 4
    connection.close()
    compared_tools.clean(way)
    assert not way.copy.exists()
    assert not way.cache.exists()
    assert made["plain"].exists()


@pytest.fixture
def each_command_once(tmp_path, monkeypatch):
    """A command that the benchmark runs again prints what it printed, in the time that it took.

    Memory for a trace is taken once, and the work that tells how cores share is little.
    """
    runs, start = {}, tool_comparison.run

    def run(command, printed, limit_s=tool_comparison.NO_LIMIT_S):
        kept = runs.get(tuple(command))
        if kept:
            printed.write_bytes(kept[1])
        else:
            timed = start(command, printed, limit_s)
            kept = runs[tuple(command)] = (timed, printed.read_bytes())
        return kept[0]

    monkeypatch.setattr(tool_comparison, "run", run)
    monkeypatch.setattr(tool_comparison, "take_memory", cache(tool_comparison.take_memory))
    monkeypatch.setattr(machine, "_WORK", "sum(range(1_000))")


@pytest.mark.usefixtures("each_command_once")
def test_an_interrupted_benchmark_goes_on(tmp_path, monkeypatch, capsys):
    written = tmp_path / "results.json"
    folder = ["--folder", str(tmp_path), "--json", str(written), "--nsys", "", "--nsys-ai", ""]
    traces = ["--kernels", "500", "--shapes", "kineto", "--shape-kernels", "1000", "--runs", "1"]

    def ran(*more):
        monkeypatch.setattr(sys, "argv", ["tool_comparison", *folder, *traces, *more])
        tool_comparison.main()
        rows = json.loads(written.read_text())["traces"]
        return [(trace["shape"], row["tool"]) for trace in rows for row in trace["tools"]]

    shapes = ("plain", "kineto")
    ours = [
        (shape, tool)
        for shape in shapes
        for tool in (compared_tools.OURS, compared_tools.JSON, compared_tools.HTML)
    ]
    whole = [
        *ours[:3],
        ("plain", compared_tools.PANDAS),
        *ours[3:],
        ("kineto", compared_tools.JSON_LOAD),
    ]
    assert ran() == whole
    kept = json.loads(written.read_text())
    for trace in kept["traces"]:
        del trace["tools"][1:]
        trace["tools"][0]["wall_s"] = [77.0]
    written.write_text(json.dumps(kept))
    capsys.readouterr()
    assert len(ran("--resume", "--minutes", "-1")) == 2
    printed = capsys.readouterr()
    assert "--resume goes on" in printed.err
    assert "| 1,000 kineto | 77.00 |" in printed.out
    assert ran("--resume", "--rival-runs", "2") == whole
    assert "| runs | 1 | 1 | 1 | 2 | 2 |" in capsys.readouterr().out


def nsys_output(*blocks: str) -> str:
    return "".join(f"Processing [x.sqlite] with [{block}" for block in blocks)


def test_a_report_that_nsys_skips_is_no_result():
    head = "a.py]...\n\nTime (%),Total Time (ns),Instances,Name\n1.0,70,2,gemm\n"
    whole = nsys_output(*[head] * len(compared_tools.NSYS_REPORTS))
    assert compared_tools.nsys_sums([whole]) == {"gemm": (2, 70)}
    skipped = nsys_output(
        *[head] * (len(compared_tools.NSYS_REPORTS) - 1), "b.py]...\nSKIPPED: no table\n"
    )
    with pytest.raises(compared_tools.WrongError, match="did not make nvtx_kern_sum"):
        compared_tools.nsys_sums([skipped])
    with pytest.raises(ValueError, match="shorter"):
        compared_tools.nsys_sums([nsys_output(head)])


def found():
    """As a benchmark would leave it: another tool takes twice as long, and is left out at last."""

    def tool(name, *seconds):
        figures = {"wall_s": list(seconds), "cpu_s": [1.0], "peak_mib": [10.0, 20.0]}
        return {"tool": name, **figures, "sums": "96 equal"}

    def trace(kernels, seconds, *tools_, shape="plain"):
        ours = tool(compared_tools.OURS, seconds, seconds + 9, seconds - 0.01)
        beside = {"file_bytes": kernels * 200, "cat_s": [0.1], "numpy_s": [0.2]}
        return {"kernels": kernels, "shape": shape, **beside, "tools": [ours, *tools_]}

    left_out = {"tool": compared_tools.NSYS, "left_out": "about 400 s"}
    machine = {"cpu": "a CPU", "cores": 2, "memory_gb": 24, "system": "Linux", "load_at_start": 0.0}
    versions = dict.fromkeys(("traceview", "python", "numpy", "pandas", "sqlite", "nsys"), "1.0")
    return {
        "machine": {**machine, **versions, "nsys_ai": None},
        "help_s": [0.07, 0.05, 0.06],
        "traces": [
            trace(1_000, 0.5, tool(compared_tools.NSYS, 1.0)),
            trace(100_000, 0.7, tool(compared_tools.NSYS, 1.4)),
            trace(1_000_000, 2.9),
            trace(5_000, 0.6, left_out, shape="dense"),
        ],
    }


def test_results_are_told_as_tables():
    told = result_tables.markdown(found())
    assert "2 cores of a CPU, 24 GB, Linux; load 0.0 at the start; traceview 1.0" in told
    assert "nsys-ai" not in told
    assert "`traceview --help` takes 0.06 s." in told
    assert "| 1,000,000 | traceview report | 3 | 2.90 | 2.89 | 1.00 | 20 | 96 equal |" in told
    assert "| runs | 3 | 1 |\n| 1,000 | 0.50 | 1.00 |\n| 100,000 | 0.70 | 1.40 |" in told
    assert "| 5,000 dense | nsys stats (6 reports) |  | about 400 s |  |  |  |  |" in told
    assert "| 100,000 | 2.00 |\n| 1,000,000 |  |\n| 5,000 dense |  |" in told
    page = f"# P\n\n{result_tables.BEGIN}\nold\n{result_tables.END}\n\nend\n"
    assert result_tables.into(page, told) == page.replace("old", f"\n{told}\n")
    with pytest.raises(SystemExit, match="the page lacks"):
        result_tables.into("# P", told)
    assert "| 100,000 | 7.00 | 2.00 |\n| 1,000,000 | 2.90 | 2.40 |\n\n" in told
    assert "from 100,000 kernels on: whole 2.41, less start-up 1.20." in told
    assert "| 1,000,000 | 200 | 0.100 | 0.200 | 2.90 | 69 | 29 |" in told


def test_the_picture_is_one_and_always_the_same():
    from benchmarks.report import chart

    drawn = chart.draw(found())
    assert drawn == chart.draw(found())
    words = {text.text for text in ElementTree.fromstring(drawn).iter() if text.text}
    assert "traceview report: 2.9 s for 1,000,000" in words
    assert "nsys stats (6 reports): 1.4 s for 100,000" in words


def test_a_tool_that_would_take_too_long_is_left_out():
    traces = found()["traces"][:2]
    longer = {"file_bytes": 200_000_000, "tools": []}
    expected = {"tool": compared_tools.NSYS, "left_out": "about 14 s"}
    assert tool_comparison._left_out(traces, longer, compared_tools.NSYS, 14.1) is None
    assert tool_comparison._left_out(traces, longer, compared_tools.NSYS, 13.9) == expected
    assert tool_comparison._left_out([], longer, compared_tools.NSYS, 1.0) is None
    assert tool_comparison._left_out(traces, longer, compared_tools.JSON, 0.1) is None
    assert tool_comparison._left_out(traces, traces[0], compared_tools.NSYS, 1.5) is None


def test_ours_comes_first_and_the_slowest_last():
    given = Namespace(kernels=[500, 1_000], shapes=["plain", "dense"], shape_kernels=1_000)
    given.runs, given.rival_runs = 5, 1
    plan = list(tool_comparison._planned(given))
    traces = [(500, "plain"), (1_000, "plain"), (1_000, "dense")]
    ours = (compared_tools.OURS, compared_tools.JSON, compared_tools.HTML)
    assert plan[:3] == [(ours, 5, trace) for trace in traces]
    assert plan[-3:] == [((compared_tools.NSYS,), 1, trace) for trace in traces]


def test_a_job_of_ranks_has_one_that_the_report_names(tmp_path):
    size = rank_jobs.JobSize(3, 960)
    rank_jobs.write_job(tmp_path / "job", size)
    ran = rank_jobs.timed(rank_jobs.report(str(tmp_path / "job"), "--json", "--jobs", "1"))
    rank_jobs.check(ran.out, size)
    assert ran.peak_mib > 50
    assert ran.cpu_s > 0
    with pytest.raises(SystemExit):
        rank_jobs.check(ran.out, rank_jobs.JobSize(5, 960))


COUNTS_RANGES = """
import sys
sys.path.insert(0, ".")
from benchmarks.recording_overhead import ranges_and_samples as measured
import torch
opened = []
measured.nvtx_ranges._carrier = (opened.append, str)
measured.nvtx_ranges.choose = lambda _: True
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
    done = run_python(COUNTS_RANGES, [], os.environ, folder=REPOSITORY, timeout_s=300)

    off, auto, modules, off_again = map(int, done.stdout.split())

    assert (off, off_again) == (0, 0), done.stderr
    # zero_grad, step, forward, backward, optimizer; modules inside the model as well.
    assert 4 <= auto < modules


def test_the_interval_of_a_cost_holds_the_difference():
    off = np.random.default_rng(1).normal(10.0, 0.5, 400)

    cost, low, high = ranges_and_samples.interval(off, off[::-1] * 1.03)

    assert cost == pytest.approx(3.0)
    assert 1.0 <= low <= cost <= high <= 5.0
