"""The analysis `trace-health`: what a recording can and cannot answer."""

from contextlib import closing
from sqlite3 import connect

import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.trace_health.checks import status
from tests.build import Export
from traceview.traces.analyses.trace_health import ANALYSIS
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load


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


def test_graphs_recorded_both_ways(tmp_path):
    export = Export().graph_whole((0, 2), (10, 20)).graph_launch((3, 4), [(30, 40), (40, 50)])

    result = ask(ANALYSIS, export, tmp_path)

    assert [state for state, _ in status(result, "CUDA graphs")] == ["blind", "note"]


@pytest.mark.parametrize(("nvtx", "expected"), [("0.2.13", "blind"), ("0.2.11", "note")])
def test_a_too_new_nvtx_package_is_named(tmp_path, nvtx, expected):
    export = Export("3.7.2").run(nvtx=nvtx).launch((0, 2), (10, 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "NVTX ranges")[0][0] == expected


def test_operations_recorded_twice_count_once(tmp_path):
    export = Export().launch((0, 2), (11, 20), correlation=7).launch((30, 32), (40, 50))
    export.kernel_without_launch((11, 20), correlation=7)

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "rows") == [
        ("note", "The recording holds 1 row twice; each counts once.")
    ]
    assert not result.findings


def test_nodes_of_a_graph_are_no_repetition(tmp_path):
    export = Export().graph_launch((0, 2), [(10, 20), (20, 30), (30, 40)])

    assert not status(ask(ANALYSIS, export, tmp_path), "rows")


SECOND = 1_000_000_000


@pytest.mark.parametrize(("wrong", "severity"), [(1, "medium"), (5, "high")])
def test_rows_that_cannot_be_true_are_no_small_matter(tmp_path, wrong, severity):
    export = Export()
    export.raw("ANALYSIS_DETAILS", globalVid=1, duration=SECOND, startTime=0, stopTime=SECOND)
    for step in range(40):
        late = 9 * SECOND if step < wrong else 0
        export.launch((31 * step, 31 * step + 5), (late + 31 * step + 7, late + 31 * step + 20))

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "rows")
    assert state == "blind"
    assert detail.startswith(f"The report leaves out {wrong} row")
    [finding] = [each for each in result.findings if each.evidence.row["check"] == "rows"]
    assert finding.severity == severity


@pytest.mark.parametrize(("wrong", "said"), [(1, False), (3, False), (30, True)])
def test_a_few_calls_of_the_system_that_cannot_be_true_are_no_finding(tmp_path, wrong, said):
    export = Export().launch((0, 5), (7, 20))
    export.raw("ANALYSIS_DETAILS", globalVid=1, duration=SECOND, startTime=0, stopTime=SECOND)
    for number in range(100):
        late = 9 * SECOND if number < wrong else 0
        export.os_call("read", late + 31 * number, late + 31 * number + 9)

    assert bool(status(ask(ANALYSIS, export, tmp_path), "rows")) is said


def test_a_recording_in_which_nsys_saw_no_cuda(tmp_path):
    export = Export().range("main", 0, 10)
    export.diagnostic("No CUDA events collected. Does the process use CUDA?")

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert finding.message == (
        "nsys recorded no CUDA call: the program made none, or nsys did not see them."
    )
    assert finding.action.startswith("If the program uses a GPU, check that nsys is as new as")


@pytest.mark.parametrize(
    ("library", "hidden"),
    [("x86_64-linux-gnu/libcuda.so.1.1", True), ("wsl/libcuda.so", True), ("libm.so.6", False)],
)
@pytest.mark.parametrize("work", ["load(Particles&)", "app::load<float>(float*)"])
@pytest.mark.parametrize("own", [40, 3])
@pytest.mark.parametrize("other", [False, True])
def test_samples_show_cuda_that_nsys_did_not_see(tmp_path, library, hidden, work, own, other):
    """And where the program itself worked, also where nothing but samples was recorded."""
    export = Export()
    export.diagnostic("No CUDA events collected. Does the process use CUDA?")
    if other:
        export.os_call("read", 0, 10)
    for number in range(20 + own):
        called = [(f"/usr/lib/{library}", "called"), ("/usr/lib/libstdc++.so.6", None)]
        frames = [("/home/user/app", work), ("/home/user/app", "main")]
        export.native_sample(10_000_000 * (number + 1), *(called if number < 20 else frames))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert (finding.severity == "high") is hidden
    assert (
        f"20 of {20 + own} samples of the CPU are in CUDA's driver" in finding.message
    ) is hidden
    named = "Of its own code, 100.0 % of the samples are in "
    assert (named in finding.message) is (hidden and own == 40)
    assert recorded_span(export.load(tmp_path))[1] == 10_000_000 * (20 + own)


@pytest.mark.parametrize(
    ("driver", "said"),
    [("13000", "is newer"), ("12020", "the program made none"), ("", "the program made none")],
)
@pytest.mark.parametrize("starts", [False, True])
def test_a_recording_of_an_nsys_older_than_the_driver(tmp_path, driver, said, starts):
    """nsys of 2023, which says nothing of it in exports of its schema."""
    export = Export("3.7.2").range("main", 0, 10).driver(driver)
    if starts:
        export.overhead(0, 5, name="TLS allocation")

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert said in finding.message
    assert finding.action.startswith("Update nsys") is (said == "is newer")
    expected = ("high" if starts else "medium") if said == "is newer" else "low"
    assert finding.severity == expected


def test_helpers_without_cuda_beside_gpu_work_are_no_finding(tmp_path):
    export = Export().range("step", 0, 10).launch((0, 2), (10, 20))
    export.diagnostic("No CUDA events collected. Does the process use CUDA?")

    assert not ask(ANALYSIS, export, tmp_path).findings


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (2, ""),
        (9, "InvalidConfiguration"),
        (98, "InvalidDeviceFunction"),
        (209, "NoKernelImage"),
        (222, "UnsupportedPtx"),
        (701, "LaunchOutOfResources"),
        (0, ""),
    ],
)
@pytest.mark.parametrize("copies", [0, 2])
@pytest.mark.parametrize("launches", [1, 21])
def test_launches_that_all_fail_are_said_to_with_their_error(
    tmp_path, code, name, copies, launches
):
    """The first takes long, since it tries to load the code; the profiler works meanwhile."""
    export, at = Export(), 0
    for _ in range(copies):
        export.copy((at, at + 9_000), (at + 2_000, at + 8_000))
        at += 10_000
    for number in range(launches):
        end = at + (9_000 if number else 9_000_000)
        export.call("cudaLaunchKernel_v7000", at, end, error=code)
        at += 10_000_000
    export.overhead(30_000, 8_000_000, name="Unknown")
    report = analyze(export.load(tmp_path))

    [finding] = [each.finding for each in report.findings if each.finding.severity != "info"]
    failed = f"No kernel ran: calls failed with cudaError{name}" if name else "Work was launched"
    assert finding.message.startswith(failed)
    assert finding.action.startswith("Build for this GPU") is (code in (98, 209, 222))
    assert finding.action.startswith("Launch blocks that fit") is (code in (9, 701))
    assert ("no kernel ran: calls failed" in report.verdict.text) is bool(name and copies)


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("printed", ["", "cudaErrorMemoryAllocation in main.cu"])
@pytest.mark.parametrize("retried", [False, True])
def test_memory_that_a_program_did_not_get_ends_it(tmp_path, code, printed, retried):
    """An allocator may free what it holds and try again: then kernels run."""
    export = Export().call("cudaMalloc_v3020", 0, 9_000, error=code)
    if printed:
        export.printed(printed)
    if retried:
        export.call("cudaMalloc_v3020", 10_000, 19_000).launch((20_000, 25_000), (30_000, 90_000))
    found = analyze(export.load(tmp_path)).findings

    high = [each.finding for each in found if each.finding.severity == "high"]
    assert len(high) == (not retried and (code == 2 or bool(printed)))
    for finding in high:
        said = (
            "No kernel was launched, and the program printed an error"
            if printed
            else ("No kernel was launched: calls failed with cudaErrorMemoryAllocation")
        )
        assert finding.message.startswith(said)
        assert finding.action.startswith("Free GPU memory")
