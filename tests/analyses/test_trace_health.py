"""The analysis `trace-health`: what a recording lacks, and what recording it cost."""

from contextlib import closing
from sqlite3 import connect

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.conftest import DATA
from traceview.analyses.trace_health.analysis import ANALYSIS
from traceview.report import analyze
from traceview.trace.load import load


def status(result, check):
    return [
        row[1:] for row in rows(result, "checks", "check", "status", "detail") if row[0] == check
    ]


def test_a_sound_recording(tmp_path):
    export = Export().range("step", 0, 10).launch((0, 2), (10, 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert {row[0] for row in rows(result, "checks", "status")} == {"ok"}
    assert not result.findings


def test_kernels_without_a_required_column_are_unread_and_not_absent(tmp_path):
    path = Export().launch((0, 2), (10, 20)).copy((3, 5), (30, 40)).write(tmp_path / "a.sqlite")
    with closing(connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN deviceId")
        database.commit()

    report = analyze(load(path))

    why = "table CUPTI_ACTIVITY_KIND_KERNEL has no column deviceId"
    assert report.verdict.text == f"GPU time unknown: {why}."
    first = report.findings[0].finding
    assert first.message == f"The kernels were not read, so GPU time is unknown: {why}."
    assert first.action.startswith("Export the recording again")
    assert report["kernel-share"].reason == f"no kernels, as {why}"
    assert report["kernel-share"].remedy.startswith("export the recording again")


def test_graphs_recorded_whole_are_a_blind_spot(tmp_path):
    export = Export().graph_whole((0, 2), (10, 1010))

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "CUDA graphs")
    assert state == "blind"
    assert detail.startswith("The kernels inside 1 CUDA graph launch (1.00 µs) are hidden")
    assert result.findings[0].message == detail
    assert result.findings[0].evidence.values == {"launches": 1, "graph_ns": 1000}
    assert "kernel-share and memory-copies do not see what ran inside" in detail
    assert "--cuda-graph-trace=node" in result.findings[0].action
    assert "traceview record --graph-trace node" in result.findings[0].action


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


def test_graphs_recorded_both_ways(tmp_path):
    export = Export().graph_whole((0, 2), (10, 20)).graph_launch((3, 4), [(30, 40), (40, 50)])

    result = ask(ANALYSIS, export, tmp_path)

    assert [state for state, _ in status(result, "CUDA graphs")] == ["blind", "note"]


def test_launches_without_kernels_and_kernels_without_launches(tmp_path):
    export = Export().launch_without_kernel((0, 2)).kernel_without_launch((10, 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert [detail.split(":")[0] for _, detail in status(result, "launches")] == [
        "1 launch call without GPU work",
        "1 operation without a launch call",
    ]


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
            "Buffer flush.",
        )
    ]


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


def test_dropped_events_are_reported(tmp_path):
    export = Export().diagnostic("CUDA: 42 events were dropped.", severity="error")

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "warning"
    assert rows(result, "diagnostics", "severity", "times", "text") == [
        ("error", 1, "CUDA: 42 events were dropped.")
    ]


def test_a_recording_that_the_recorder_could_not_read_back_is_no_sound_one(tmp_path):
    said = (
        "Error when processing events: Source ID=\nType=ErrorInformation (18)\n"
        "[QuadDCommon::tag_message*] = Cannot find string for an exterior index\n"
    )
    export = Export().launch((0, 2), (10, 20)).diagnostic(said)

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "lost events")
    assert state == "blind"
    assert detail.endswith("much is missing: Cannot find string for an exterior index")
    assert any("every figure covers only part of them" in note for note in result.notes)
    assert result.findings[0].severity == "high"


@pytest.mark.parametrize(("counted", "state"), [(4, "note"), (100, "blind")])
def test_a_failed_import_is_weighed_by_what_cupti_produced(counted, state, tmp_path):
    """Three launches with their kernels are six events."""
    export = Export().diagnostic("Error when processing events: what went wrong")
    export.diagnostic(f"Number of CUPTI events produced: \t{counted}, CUPTI buffers: 1.")
    for at in (0, 100, 200):
        export.launch((at, at + 2), (at + 10, at + 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == state
    assert bool(result.notes) == (state == "blind")


def test_a_failed_import_that_parted_launches_from_their_work_is_told(tmp_path):
    export = Export().diagnostic("Error when processing events: what went wrong")
    export.diagnostic("Number of CUPTI events produced: \t4, CUPTI buffers: 1.")
    export.launch((0, 2), (10, 20)).launch((30, 32), (40, 50)).call("cudaLaunchKernel", 33, 35)

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "blind"


def test_a_recorder_that_only_says_that_not_all_was_collected_is_believed(tmp_path):
    export = Export().diagnostic("Not all CUDA events might have been collected.")

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "blind"


@pytest.mark.parametrize("lost", [False, True])
def test_a_bounded_recording_whose_launches_all_have_their_work_lost_nothing(tmp_path, lost):
    """nsys says the same of a recording that ends while the program goes on."""
    shown = "nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop python x.py"
    export = Export().run(nsys_command=shown).launch((0, 2), (10, 20))
    export.diagnostic("Not all CUDA events might have been collected.")
    if lost:
        export.launch_without_kernel((30, 32))

    result = ask(ANALYSIS, export, tmp_path)

    assert [state for state, _ in status(result, "lost events")] == ["blind" if lost else "note"]
    if not lost:
        assert not result.findings


@pytest.mark.parametrize(("nvtx", "expected"), [("0.2.13", "blind"), ("0.2.11", "note")])
def test_a_too_new_nvtx_package_is_named(tmp_path, nvtx, expected):
    export = Export("3.7.2").run(nvtx=nvtx).launch((0, 2), (10, 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "NVTX ranges")[0][0] == expected


def test_launches_into_a_graph_that_is_captured_are_not_lost(tmp_path):
    export = (
        Export()
        .call("cudaStreamBeginCapture_v10000", 0, 1)
        .launch_without_kernel((2, 4))
        .launch_without_kernel((2, 4), thread=1)
        .call("cudaStreamEndCapture_v10000", 5, 6)
        .launch((7, 8), (10, 20))
    )

    result = ask(ANALYSIS, export, tmp_path)

    [(_, detail)] = status(result, "launches")
    assert detail.startswith("1 launch call without")


def test_launches_none_of_which_was_recorded_leave_the_report_blind(tmp_path):
    result = ask(ANALYSIS, Export().launch_without_kernel((0, 2)), tmp_path)

    assert status(result, "GPU work")[0][0] == "blind"
    assert result.findings[0].severity == "medium"


def test_the_shipped_recording_that_nsys_failed_on_says_so_before_all_else(unpack):
    report = analyze(load(unpack("jax")))

    assert "every figure covers only part of them" in report.trace.warnings[0]
    assert report.findings[0].analysis == "trace-health"


@pytest.mark.parametrize(
    ("lost", "status", "severity"), [(1, "warning", "low"), (5, "blind", "high")]
)
def test_launches_that_lost_their_work_put_all_in_doubt_where_they_are_most(
    tmp_path, lost, status, severity
):
    export = Export()
    for start in range(0, 300, 100):
        export.launch(call=(start, start + 2), kernel=(start + 8, start + 20))
    for start in range(1000, 1000 + 10 * lost, 10):
        export.call("cudaLaunchKernel", start, start + 2)
    result = ask(ANALYSIS, export, tmp_path)
    (check,) = [row for row in result.tables["checks"].rows() if row["check"] == "launches"]
    assert check["status"] == status
    (finding,) = [each for each in result.findings if each.evidence.row["check"] == "launches"]
    assert finding.severity == severity


NOT_ALL = "Not all {} events might have been collected."


def test_lost_events_of_a_helper_process_affect_no_answer(tmp_path):
    export = Export().range("step", 0, 10).launch((0, 2), (10, 20))
    export.diagnostic(NOT_ALL.format("NVTX"), process=7)
    export.diagnostic(NOT_ALL.format("CUDA"), process=8)

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "lost events")
    assert (state, detail[:18]) == ("note", "2 helper processes")
    assert not result.findings
    assert not any("every figure" in note for note in result.notes)


@pytest.mark.parametrize(("kind", "expected"), [("NVTX", "note"), ("CUDA", "blind")])
def test_lost_events_of_the_process_with_gpu_work_count_by_their_kind(tmp_path, kind, expected):
    export = Export().launch((0, 2), (10, 20)).diagnostic(NOT_ALL.format(kind), process=1)

    [(state, detail)] = status(ask(ANALYSIS, export, tmp_path), "lost events")

    assert state == expected
    assert kind in detail


def windowed():
    """A loop cut off at both ends, whose CPU runs three launches ahead."""
    export = Export()
    for number in range(3):
        export.kernel_without_launch((100 * number, 100 * number + 90))
    for number in range(3, 20):
        at = 100 * (number - 3)
        export.launch((at, at + 2), (100 * number, 100 * number + 90))
    for number in range(17, 20):
        export.launch_without_kernel((100 * number, 100 * number + 2))
    return export


def test_a_window_cut_at_both_ends_is_a_note(tmp_path):
    result = ask(ANALYSIS, windowed().diagnostic(NOT_ALL.format("CUDA"), process=1), tmp_path)

    [(state, detail)] = status(result, "window")
    assert state == "note"
    assert "3 operations at its beginning" in detail
    assert "3 launch calls at its end" in detail
    assert [row[0] for row in status(result, "launches")] == ["ok"]
    assert not result.findings


def test_launches_lost_in_the_middle_of_a_window_are_a_warning(tmp_path):
    result = ask(ANALYSIS, windowed().launch_without_kernel((550, 552)), tmp_path)

    [(state, detail)] = status(result, "launches")
    assert state == "warning"
    assert detail.startswith("1 launch call without GPU work")


@pytest.mark.parametrize(("recorded", "expected"), [(1, ["warning"]), (30, [])])
def test_copies_without_a_record_are_named(tmp_path, recorded, expected):
    """A few calls without a record copied nothing."""
    export = Export()
    for at in range(0, 300, 100):
        export.call("cudaMemcpyAsync_v3020", at, at + 2)
    for at in range(300, 300 + 100 * recorded, 100):
        export.copy((at, at + 2), (at + 10, at + 20))

    assert [state for state, _ in status(ask(ANALYSIS, export, tmp_path), "copies")] == expected


def test_operations_recorded_twice_are_counted(tmp_path):
    export = Export().launch((0, 2), (10, 20), correlation=7).launch((30, 32), (40, 50))
    export.kernel_without_launch((10, 20), correlation=7)

    [(state, detail)] = status(ask(ANALYSIS, export, tmp_path), "rows")

    assert state == "warning"
    assert detail.startswith("1 operation")


def test_nodes_of_a_graph_are_no_repetition(tmp_path):
    export = Export().graph_launch((0, 2), [(10, 20), (20, 30), (30, 40)])

    assert not status(ask(ANALYSIS, export, tmp_path), "rows")


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

    assert "cost one thread up to 5.50 ms, 27.5 % (estimate): " in finding.message
    for part in ("100 Python samples", "100 native samples", "100 call chains"):
        assert part in finding.message
    assert "--python-sampling-frequency=100" in finding.action


def of_length(length, *spans):
    """A recording of that length with these kernels."""
    export = Export()
    export.raw("ANALYSIS_DETAILS", globalVid=1, duration=length, startTime=0, stopTime=length)
    for span in spans:
        export.launch((span[0] - 20, span[0] - 10), span)
    return export


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("spans", "wrong"),
    [
        ([(SECOND, SECOND + 10), (2 * SECOND, 3 * SECOND)], 0),
        ([(SECOND, SECOND + 10), (SECOND + 20, 9 * SECOND)], 1),
        ([(SECOND, SECOND + 10)] * 3 + [(50 * SECOND, 50 * SECOND + 10)], 1),
        ([(-50 * SECOND, 10 - 50 * SECOND)] + [(SECOND, SECOND + 10)] * 3, 1),
    ],
)
def test_times_beyond_the_length_of_the_recording_are_warned_of(tmp_path, spans, wrong):
    result = ask(ANALYSIS, of_length(3 * SECOND, *spans), tmp_path)

    found = [
        row for row in rows(result, "checks", "check", "status", "detail") if row[0] == "times"
    ]
    assert len(found) == bool(wrong)
    for _, status_of_times, detail in found:
        assert status_of_times == "warning"
        assert detail.startswith(f"The times of {wrong} operation")
        assert "recording of 3.00 s" in detail


def test_launches_without_a_table_of_kernels_are_not_called_lost(tmp_path):
    trace = Export().call("cudaLaunchKernel", 0, 10).load(tmp_path).without("kernels")

    messages = [each.message for each in ANALYSIS.run(trace).findings]

    unread = "Work was launched, but no table of kernels was read, so GPU time is unknown."
    assert unread in messages
    assert not [message for message in messages if "failed, or" in message]


def test_profiler_overhead_without_known_warm_up_claims_no_share(tmp_path):
    export = Export().launch((0, 10), (100, 200)).launch((20, 30), (9_000, 9_100))
    export.overhead(1_000, 6_000)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith("The profiler took 5.00 µs, 55.6 % of the GPU span")
    assert (finding.time_at_stake_ns, finding.share_of_step_pct) == (0, None)


def test_a_recording_in_which_nsys_saw_no_cuda(tmp_path):
    export = Export().range("main", 0, 10)
    export.diagnostic("No CUDA events collected. Does the process use CUDA?")

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert finding.message == (
        "nsys recorded no CUDA call: the program made none, or nsys did not see them."
    )
    assert finding.action.startswith("If the program uses a GPU, check that nsys is as new as")


def test_helpers_without_cuda_beside_gpu_work_are_no_finding(tmp_path):
    export = Export().range("step", 0, 10).launch((0, 2), (10, 20))
    export.diagnostic("No CUDA events collected. Does the process use CUDA?")

    assert not ask(ANALYSIS, export, tmp_path).findings
