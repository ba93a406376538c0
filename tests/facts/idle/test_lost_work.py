"""Gaps in which work may have run that the recording lost."""

import numpy as np
import pytest

import traceview
from tests.build import Export
from tests.trace.kineto import traces
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.gaps import UnknownIdle, gaps, unknown_idle


def causes(trace):
    every = gaps(trace)
    return [
        (int(start), CAUSE_NAMES[cause])
        for start, cause in zip(every.start_ns, every.cause, strict=True)
    ]


def test_a_gap_between_launches_with_a_lost_one_between_them(tmp_path):
    export = Export().launch((0, 2), (10, 20)).launch_without_kernel((30, 32))
    export.launch((60, 62), (70, 80)).launch((100, 102), (110, 120))
    assert causes(export.load(tmp_path)) == [(20, "lost-work"), (80, "launch-late")]


def test_the_order_of_launches_counts_and_not_their_time(tmp_path):
    # The CPU is ahead: it makes the launch that is lost while the GPU is still at the first ones.
    export = Export().launch((0, 2), (10, 100)).launch((3, 4), (150, 200))
    export.launch_without_kernel((120, 122)).launch((130, 132), (300, 310))
    assert causes(export.load(tmp_path)) == [(100, "dependency"), (200, "lost-work")]


@pytest.mark.parametrize("begun_before", [False, True])
def test_launches_into_a_captured_graph_are_not_lost(tmp_path, begun_before):
    export = Export().launch((0, 2), (10, 20)).call("cudaStreamBeginCapture", 22, 23)
    if begun_before:
        # The end of a capture that began before the recording.
        export.call("cudaStreamEndCapture", 4, 5)
    export.launch_without_kernel((24, 25)).call("cudaStreamEndCapture", 26, 27)
    export.launch((60, 62), (70, 80))
    assert causes(export.load(tmp_path)) == [(20, "launch-late")]


def test_a_thread_speaks_to_the_gpu_that_it_launched_on(tmp_path):
    export = Export()
    for device in (0, 1):
        where = {"device": device, "thread": device}
        export.launch((0, 2), (10, 20), **where).launch((60, 62), (70, 80), **where)
    export.launch_without_kernel((30, 32), thread=1)
    assert causes(export.load(tmp_path)) == [(20, "launch-late"), (20, "lost-work")]


def test_another_process_on_the_same_gpu_may_have_filled_the_gap(tmp_path):
    export = Export().launch((0, 2), (10, 20)).launch((60, 62), (70, 80))
    export.launch((90, 92), (100, 110)).launch((130, 132), (140, 150))
    export.launch((0, 2), (12, 15), process=2).launch_without_kernel((30, 32), process=2)
    found = causes(export.load(tmp_path))
    assert found == [(20, "lost-work"), (80, "launch-late"), (110, "launch-late")]


def test_a_little_lost_work_leaves_the_figures_sound(tmp_path):
    export = Export()
    for start in range(0, 10_000, 100):
        export.launch((start, start + 2), (start + 10, start + 90))
    export.launch_without_kernel((5050, 5052))
    trace = export.load(tmp_path)
    assert "lost-work" in {cause for _, cause in causes(trace)}
    assert unknown_idle(trace) == {}


def test_most_work_lost_at_the_end_leaves_idle_time_unknown_without_any_gap(tmp_path):
    export = Export().launch((0, 2), (10, 20)).launch((60, 62), (70, 80))
    for start in range(100, 150, 10):
        export.launch_without_kernel((start, start + 2))
    assert unknown_idle(export.load(tmp_path)) == {0: UnknownIdle(lost=5, launches=7, gaps_ns=0)}


def test_a_failed_launch_on_one_gpu_says_nothing_about_another(tmp_path):
    export = Export()
    for process, device in ((1, 0), (2, 1)):
        where = {"process": process, "device": device}
        export.launch((0, 2), (10, 20), **where).launch((60, 62), (70, 80), **where)
    for start in range(30, 40, 2):
        export.launch_without_kernel((start, start + 1), process=2)
    assert unknown_idle(export.load(tmp_path)) == {1: UnknownIdle(5, 7, 50)}


def cut_window(draw, waited, blocking, behind):
    """A window of torch.profiler that begins within a step: a read-back waits for its kernels.

    So do kernels on a stream of theirs, `behind` of which are launched before the read-back.
    """
    events, at = [traces.call("cudaLaunchKernel", 0, 5, 1), traces.kernel("add", 8, 3, 1)], 20
    for number in range(behind):
        begin = at + 20 + 20 * behind + waited + 4 * number
        events.append(traces.call("cudaLaunchKernel", at, 5, 1_000 + number))
        events.append(traces.kernel("queued", begin, 4, 1_000 + number, stream=13))
        at += 20
    if blocking:
        events.append(traces.call("cudaMemcpy", at, waited + 10, 2))
    else:
        events.append(traces.call("cudaMemcpyAsync", at, 6, 2))
        events.append(traces.call("cudaStreamSynchronize", at + 8, waited, 3))
    events.append(traces.copy("Memcpy DtoH (Device -> Pageable)", at + waited, 2, 2, bytes=256))
    at += waited + 20
    for number in range(int(draw.integers(20, 200))):
        begin = at + 105 * number
        events.append(traces.call("cudaLaunchKernel", at + 10 * number, 5, 10 + number))
        events.append(traces.kernel(f"k{number * number % 37}", begin + 10, 100, 10 + number))
    return events


@pytest.mark.parametrize("behind", [0, 1, 4])
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("waited", [2_000, 30_000, 463_000])
def test_the_first_wait_of_a_window_is_for_work_from_before_it(tmp_path, waited, blocking, behind):
    draw = np.random.default_rng(waited)
    events = cut_window(draw, waited, blocking, behind)
    trace = traceview.load(traces.write(tmp_path / "t.json", events))
    every = gaps(trace)
    lost = [CAUSE_NAMES[cause] == "lost-work" for cause in every.cause]
    assert [int(each) // 1_000 for each in every.idle_ns[lost]] == [waited + 9 + 20 * behind]
    [unknown] = unknown_idle(trace).values()
    assert (unknown.lost, unknown.gaps_ns) == (0, int(every.idle_ns[lost][0]))


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("waited", [500, 30_000, 463_000])
def test_a_window_that_begins_with_a_wait_says_so(tmp_path, waited, blocking):
    """Nothing was recorded before it that the read-back may wait for."""
    events = cut_window(np.random.default_rng(waited), waited, blocking, 0)[2:]
    text = traceview.analyze(traceview.load(traces.write(tmp_path / "t.json", events))).verdict.text
    assert ("ms before that wait for work from before the recording" in text) is (waited > 1_000)


@pytest.mark.parametrize("waits", [True, False])
def test_a_step_that_begins_with_such_a_wait_does_no_other_work(tmp_path, waits):
    events = cut_window(np.random.default_rng(7), 463_000, False, 0)[2:]
    if not waits:
        events = [each for each in events if each["name"] != "cudaStreamSynchronize"]
    begin = min(each["ts"] for each in events)
    events.append(traces.span("user_annotation", "ProfilerStep#3", begin, 480_000))
    report = traceview.analyze(traceview.load(traces.write(tmp_path / "t.json", events)))
    said = [each.message for each in report.findings if "did other work until then" in each.message]
    assert bool(said) is not waits


@pytest.mark.parametrize("launch", ["cudaGraphLaunch_v10000", "cuGraphLaunch"])
@pytest.mark.parametrize("copies", [0, 1, 3])
@pytest.mark.parametrize("kernels", [0, 2])
def test_graphs_without_their_kernels_ask_for_a_recording_by_node(
    tmp_path, launch, copies, kernels
):
    export, at = Export(), 0
    for _ in range(30):
        for _ in range(copies):
            export.copy((at, at + 8_000), (at + 9_000, at + 12_000), source="pinned")
            at += 20_000
        for number in range(kernels):
            export.launch((at, at + 8_000), (at + 9_000, at + 12_000), name=f"k{number}")
            at += 20_000
        export.launch_without_kernel((at, at + 30_000), api=launch)
        export.call("cudaStreamSynchronize_v3020", at + 40_000, at + 8_000_000)
        at += 8_100_000
    findings = traceview.analyze(export.load(tmp_path)).findings
    without = "without a record of their kernels", "whose kernels were not recorded"
    assert any(text in findings[0].finding.message for text in without)
    assert "--graph-trace node" in findings[0].finding.action
    assert not any(each.analysis == "sync-stalls" for each in findings)


@pytest.mark.parametrize("api", ["cudaFree", "cudaMalloc", "cuModuleLoadData"])
def test_calls_that_wait_for_other_reasons_hide_no_work_from_before(tmp_path, api):
    events = [traces.call("cudaLaunchKernel", 0, 5, 1), traces.kernel("add", 8, 3, 1)]
    events.append(traces.call(api, 20, 22_000, 2))
    for number in range(40):
        begin = 22_030 + 105 * number
        events.append(traces.call("cudaLaunchKernel", begin, 5, 10 + number))
        events.append(traces.kernel("k", begin + 10, 90, 10 + number))
    assert not unknown_idle(traceview.load(traces.write(tmp_path / "t.json", events)))
