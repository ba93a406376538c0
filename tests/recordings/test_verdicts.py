"""Verdicts on real recordings, held against what their own rows say of the same time.

The raw rows are read by the oracle; the figures named here are those of the recordings.
"""

import lzma
import re
from functools import cache
from pathlib import Path

import pytest

import traceview
from tests.oracles import brute_force
from tests.places import DATA
from traceview.base.findings import Finding
from traceview.traces.reporting import Report
from traceview.traces.trace import Selection

MS = 1_000_000


def path_of(name: str) -> Path:
    for folder in (DATA / "workloads", DATA):
        if (packed := folder / f"{name}.sqlite.xz").exists():
            return packed
    pytest.skip(f"{name}.sqlite.xz is not recorded yet: it needs a GPU")


@cache
def report(name: str, *include: str) -> Report:
    trace = traceview.load(path_of(name))
    return traceview.analyze(trace.but(selection=Selection(include=include)) if include else trace)


def findings(found: Report, analysis: str, *words: str) -> list[Finding]:
    return [
        each.finding
        for each in found.findings
        if each.analysis == analysis and all(word in each.finding.message for word in words)
    ]


def of_cause(found: Report, cause: str) -> list[Finding]:
    return [
        finding
        for finding in findings(found, "gpu-idle")
        if finding.evidence.row.get("cause") == cause
    ]


def rows(found: Report, analysis: str, table: str) -> list[dict]:
    return list(found.outcomes[analysis].tables[table].rows())


@pytest.mark.parametrize(
    ("name", "step", "idle_ns"),
    [
        ("sleep", "step_3", 19_030_931),
        ("training", "epoch_0/batch_5", 58_294_370),
        ("training", "epoch_1/batch_5", 47_624_254),
        ("mlp_print_loss", "step_3", 825_405),
    ],
)
def test_a_selected_step_has_the_idle_time_that_the_table_of_steps_gives_it(name, step, idle_ns):
    found = report(name, step)

    [row] = rows(found, "steps", "steps")
    [device] = rows(found, "gpu-idle", "devices")
    assert (row["step"], row["gpu_idle_ns"]) == (step, idle_ns)
    assert (device["idle_ns"], device["busy_ns"]) == (idle_ns, row["gpu_busy_ns"])
    assert device["span_ns"] == row["duration_ns"]


def test_the_loading_that_makes_a_step_long_is_found_where_it_is_looked_for():
    found = report("training", "batch_5")
    [late] = of_cause(found, "launch-late")
    assert "in epoch_#/batch_#/load" in late.message
    assert late.time_at_stake_ns > 100 * MS
    assert late.action.startswith("Take this CPU work out of the loop")
    # Nothing was launched in the load itself.
    [meanwhile] = findings(report("training", "epoch_0/batch_5/load"), "gpu-idle")
    assert "No GPU work was launched in the selected ranges" in meanwhile.message
    assert 57 * MS < meanwhile.time_at_stake_ns < 57.5 * MS


@pytest.mark.parametrize("name", ["transformer", "two_processes", "cupy", "sync_sites"])
def test_short_gaps_of_a_loop_are_about_launches_however_long_warm_up_took(name):
    *once, late = of_cause(report(name), "launch-late")

    assert late.action.startswith("Launch less often")
    assert all(finding.share_of_step_pct is None for finding in once)


@pytest.mark.parametrize(
    "name", ["training", "sleep", "data_loader", "first_checkpoint", "two_gpus"]
)
def test_a_cpu_that_is_away_is_not_told_to_launch_less(name):
    for verdict in findings(report(name), "run-ahead"):
        # GPU 1 of two_gpus waits for 7 ms with work queued, longer than for launches.
        assert re.search(r"is (launch|data|CPU)-bound|\(dependency-bound\)", verdict.message)
        assert verdict.action.startswith("Look in gpu-idle")


def test_late_launches_for_want_of_data_are_called_that_everywhere():
    found = report("training")
    [verdict] = findings(found, "run-ahead")

    assert found.verdict.limit == found.scoreboard.launch == "data-loading"
    assert "is data-bound: it sits idle for " in verdict.message
    assert verdict.evidence.values.keys() >= {"steady_idle_pct"}


@pytest.mark.parametrize(
    ("name", "less"),
    [("foreign/fault_empty_cache.sqlite", True), ("ranks/kinds.rank0.json", True),
     ("ranks/groups.rank1.sqlite", False)],
)  # fmt: skip
def test_run_ahead_advises_what_gpu_idle_does(name, less):
    """In `kinds` a library works on the CPU, in `empty_cache` that is known from samples."""
    found = traceview.analyze(traceview.load(DATA / f"{name}.xz"), ["gpu-idle", "run-ahead"])
    late = max(
        (each for each in findings(found, "gpu-idle") if each.cause == "launch-late"),
        key=lambda each: each.time_at_stake_ns,
    )
    verdict = findings(found, "run-ahead")[0]

    assert late.action.startswith("Launch less often") == less
    assert verdict.action.startswith("Launch less often") == less


@pytest.mark.parametrize("name", ["transformer", "cuda_graphs"])
def test_a_cpu_that_launches_much_is_told_to_launch_less(name):
    [verdict] = findings(report(name), "run-ahead")

    assert verdict.action.startswith("Launch less often")


def test_a_gpu_that_mostly_copies_is_reported_as_that():
    [verdict] = findings(report("streams"), "run-ahead")

    assert "For 43.5 ms of its 58.2 ms of work it only copies." in verdict.message
    assert verdict.action.startswith("Make copies fewer")


@pytest.mark.parametrize("name", ["cdist", "fusion", "add", "matmul", "first_checkpoint"])
def test_the_one_allocation_of_pinned_memory_is_no_loss_of_the_loop(name, tmp_path):
    (tmp_path / "raw.sqlite").write_bytes(lzma.decompress(path_of(name).read_bytes()))
    allocations = [
        call
        for call in brute_force.read(tmp_path / "raw.sqlite").calls
        if re.match("cudaHostAlloc|cudaMallocHost|cuMemHostAlloc", call.name)
    ]
    assert len(allocations) == 1

    found = report(name)
    assert not findings(found, "sync-stalls", "to cudaHostAlloc")
    steady = {
        row["place"]: row["steady_idle_after_ns"]
        for row in rows(found, "sync-stalls", "sites")
        if row["api"] == "cudaHostAlloc"
    }
    assert set(steady.values()) <= {0}


def test_recording_node_by_node_makes_graph_launches_long():
    """The same program, recorded whole: 313 µs in launches of its replays, and here 4.8 ms."""
    [nodes] = of_cause(report("cuda_graphs_nodes"), "graph-launch")
    # Besides, the graph was made once: the launches alone are too little for a finding.
    [once] = of_cause(report("cuda_graphs"), "graph-launch")

    assert "in one cudaGraphInstantiateWithFlags" in once.message
    whole_ns = int(once.evidence.values["whole_ns"]) - once.time_at_stake_ns
    assert nodes.time_at_stake_ns > 10 * whole_ns
    assert nodes.severity == "info"
    assert "recorded node by node" in nodes.message
    assert "recorded node by node" not in once.message


def test_one_gap_of_one_gpu_is_reported_as_that():
    [late] = of_cause(report("two_gpus"), "launch-late")
    assert late.message.startswith("GPU 0 sat idle for 3.12 s (4 gaps)")
    assert "A single gap before work launched outside any range took 2.97 s." in late.message
    assert late.message.endswith(" 1 other GPU sat idle for 6.02 ms for the same reason.")
    assert late.action.startswith("If every step does this")
    [once] = of_cause(report("first_checkpoint"), "launch-late")
    assert "A single gap before work launched in step_0/recompute/forward took 3.28 s." in (
        once.message
    )
    # The recording has first calls alone, which trace-health says.
    assert not once.action


def test_a_gap_of_every_step_is_not_a_single_gap():
    for selected in ((), ("step_3",)):
        [late] = of_cause(report("sleep", *selected), "launch-late")
        assert "single gap" not in late.message
        assert late.action.startswith("Take this CPU work out of the loop")


@pytest.mark.parametrize("name", ["add", "cdist"])
def test_a_few_kernels_in_seconds_are_told_to_be_recorded_longer(name):
    idle = findings(report(name), "gpu-idle")

    assert {finding.severity for finding in idle} == {"info"}
    assert report(name).findings[0].action.startswith("Record more passes")
