"""The analysis `trace-health`: what recording cost."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.trace_health.checks import status
from tests.build import Export
from tests.conftest import DATA
from traceview.traces.analyses.trace_health import ANALYSIS
from traceview.traces.trace.load import load


def test_a_note_says_that_recording_graph_nodes_slows_graphs_down(tmp_path):
    export = (
        Export()
        .range("step", 0, 10)
        .graph_launch((0, 2), [(10, 20), (20, 30), (30, 40)])
        .graph_launch((3, 4), [(50, 60), (60, 70)])
        .launch((5, 6), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "CUDA graphs")
    assert state == "note"
    assert detail.startswith("5 operations of 2 graph launches were recorded node by node")
    assert not result.findings


def test_profiler_overhead_counts_inside_the_gpu_span_only(tmp_path):
    export = (
        Export()
        .launch((0, 2), (100, 200))
        .launch((3, 4), (900, 1100))
        .overhead(0, 150)
        .overhead(300, 400)
        .overhead(350, 450)
    )

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "profiler overhead")
    assert state == "warning"
    assert "200 ns" in detail
    assert rows(result, "overheads", "calls", "total_ns", "in_gpu_span_ns") == [(3, 350, 250)]


def test_profiler_overhead_counts_in_processes_while_they_have_gpu_work(tmp_path):
    export = (
        Export()
        .launch((0, 2), (100, 200))
        .launch((3, 4), (900, 1100))
        .launch((400, 402), (500, 600), process=2)
        .overhead(150, 850, process=3)
        .overhead(110, 450, process=2)
        .overhead(590, 700, process=2)
    )

    [(state, detail)] = status(ask(ANALYSIS, export, tmp_path), "profiler overhead")

    # A compiler's, then before and after the GPU work of its own process: 10 of 1,000 count.
    assert (state, detail) == ("ok", "The profiler took 10 ns, 1.0 % of the GPU span.")


def test_profiler_overhead_of_no_process_counts_while_any_has_gpu_work(tmp_path):
    export = Export().launch((0, 2), (100, 200)).launch((3, 4), (900, 1100))
    export.raw("PROFILER_OVERHEAD", start=50, end=150, nameId=export.string("flush"))

    result = ask(ANALYSIS, export, tmp_path)

    assert list(result.tables["overheads"].cells("calls")) == [1]
    [(_, detail)] = status(result, "profiler overhead")
    assert detail.startswith("The profiler took 50 ns")


def stepped(*overheads):
    """Six steps, 0 to 6000 ns, of which the first is warm-up, and costs of the profiler by name."""
    export = Export()
    for number in range(6):
        at = 1000 * number
        export.range(f"step_{number}", at, at + 1000)
        export.launch((at + 10, at + 20), (at + 30, at + 1000))
    for name, start, end in overheads:
        export.overhead(start, end, name=name)
    return export


def test_profiler_overhead_of_warm_up_does_not_count(tmp_path):
    init = ("NVTX profiling initialization", 100, 900)

    assert not status(ask(ANALYSIS, stepped(init), tmp_path), "profiler overhead")
    late = ask(ANALYSIS, stepped(init, ("CUPTI Buffer flush", 2000, 3000)), tmp_path)
    assert status(late, "profiler overhead") == [
        (
            "warning",
            "The profiler took 1.00 µs, 20.0 % of the GPU span after warm-up, mostly for CUPTI "
            "Buffer flush, and the GPU worked for most of that time.",
        )
    ]


def test_profiler_overhead_beside_gpu_work_saves_nothing(tmp_path):
    result = ask(ANALYSIS, stepped(("CUPTI Buffer flush", 2040, 3040)), tmp_path)

    [finding] = [each for each in result.findings if "profiler took" in each.message]
    # The GPU waits for 30 ns of it, from one step to the next.
    assert finding.time_at_stake_ns == 30


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("CUDA backtrace profiling", "Record without call chains"),
        ("Python backtrace profiling initialization", "Record without call chains"),
        ("cuDNN profiling initialization", "Warm up before"),
        ("NVTX extension", "Record with fewer ranges"),
        ("CUPTI Buffer flush", "Record a shorter window"),
        ("Unknown", "Record a shorter window"),
    ],
)
def test_the_remedy_fits_the_purpose_of_the_overhead(tmp_path, name, remedy):
    others = [("TLS allocation", 1500, 1600), ("NVTX", 5500, 5600)]
    result = ask(ANALYSIS, stepped((name, 2000, 3000), *others), tmp_path)

    [(given,)] = [
        row[1:] for row in rows(result, "checks", "check", "remedy") if "overhead" in row[0]
    ]
    assert given.startswith(remedy)


@pytest.mark.parametrize(
    "name",
    ["coalescing", "divergence", "unified_memory", "../rates", "../two_gpus", "../two_processes"],
)
def test_compilers_and_profiler_start_up_cost_the_gpu_nothing(name):
    result = ANALYSIS.compute(load(DATA / "workloads" / f"{name}.sqlite.xz"))

    assert not [
        each for each in result.findings if each.evidence.row["check"] == "profiler overhead"
    ]


@pytest.mark.parametrize(("ranges", "expected"), [(4000, ["warning"]), (300, ["ok"]), (30, [])])
def test_the_cost_of_ranges_is_estimated(tmp_path, ranges, expected):
    """A span of 20 ms with 4,000 ranges of 2.5 µs each on one thread: half of it."""
    export = (
        Export().launch((0, 2), (10, 20)).launch((19_990_000, 19_990_002), (19_990_010, 20_000_010))
    )
    for number in range(ranges):
        export.range("aten::add", 1000 + 4_000 * number, 3000 + 4_000 * number, thread=1)

    found = status(ask(ANALYSIS, export, tmp_path), "cost of recording")

    assert [state for state, _ in found] == expected
    assert all("estimate" in detail for _, detail in found)
    assert not found or ("50.0 %" in found[0][1]) == (ranges == 4000)


def test_samples_and_call_chains_cost_time_as_well(tmp_path):
    """Of 20 ms: 100 samples of Python and as many native ones 2 ms each, 100 call chains 1.5 ms."""
    export = (
        Export().launch((0, 2), (10, 20)).launch((19_990_000, 19_990_002), (19_990_010, 20_000_010))
    )
    for number in range(100):
        export.python_sample(1000 + 180_000 * number, ("/home/user/train.py", 3, "main"), thread=1)
        export.native_sample(1500 + 180_000 * number, ("libtorch.so", "at::add"), thread=1)
        start = 2000 + 180_000 * number
        export.call("cudaStreamSynchronize", start, start + 10, thread=1, callchain=number + 1)
        export.chain(number + 1, "cudaStreamSynchronize")

    result = ask(ANALYSIS, export, tmp_path)
    [finding] = [each for each in result.findings if "cost_ns" in each.evidence.values]

    assert "cost one thread up to 5.50 ms, 27.5 % of its time (estimate): " in finding.message
    for part in ("100 Python samples", "100 native samples", "100 call chains"):
        assert part in finding.message
    assert "--python-sampling-frequency=100" in finding.action


def test_profiler_overhead_without_known_warm_up_claims_no_share(tmp_path):
    export = Export().launch((0, 10), (100, 200)).launch((20, 30), (9_000, 9_100))
    export.overhead(1_000, 6_000)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith("The profiler took 5.00 µs, 55.6 % of the GPU span")
    assert (finding.time_at_stake_ns, finding.share_of_step_pct) == (0, None)
