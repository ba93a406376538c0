"""A small trace for each cause of an idle gap, for what only looks like it, and the proof."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

SYNC = "cudaStreamSynchronize_v3020"


def causes(export, folder):
    return [row[0] for row in gaps(export, folder)]


def gaps(export, folder, *columns):
    """Gaps in order of time."""
    result = ask(ANALYSIS, export, folder)
    wanted = ("cause", *columns)
    return [row[1:] for row in sorted(rows(result, "gaps", "start_ns", *wanted))]


def test_a_short_wait_is_not_the_cause_of_a_long_gap(tmp_path):
    """Without the wait of 10 ns the launch would have come 10 ns earlier, of 500."""
    export = Export().launch((0, 2), (10, 100)).sync(SYNC, 95, 105).launch((595, 597), (600, 610))

    result = ask(ANALYSIS, export, tmp_path)

    assert causes(export, tmp_path) == ["launch-late"]
    assert rows(result, "causes", "cause", "idle_ns") == [("launch-late", 490), ("sync-drain", 10)]


def test_the_first_work_after_a_wait_that_ended_just_before_is_drained(tmp_path):
    """The thread waited for its own stream; another stream worked on for 500 ns."""
    export = (
        Export()
        .launch((0, 2), (10, 10_000), stream=7)
        .launch((2, 4), (10, 10_600), stream=8)
        .sync(SYNC, 10, 10_100, stream=7)
        .launch((11_000, 11_002), (11_100, 11_200))
    )

    assert gaps(export, tmp_path, "call") == [("sync-drain", "cudaStreamSynchronize")]


def test_a_wait_after_which_the_thread_launched_is_over(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 10_000))
        .sync(SYNC, 10, 10_100)
        .launch((10_200, 10_202), (10_210, 10_600))
        .launch((11_000, 11_002), (11_100, 11_200))
    )

    assert causes(export, tmp_path) == ["sync-drain", "launch-late"]


@pytest.mark.parametrize(("busy", "cause"), [(False, "sync-drain"), (True, "launch-late")])
def test_a_wait_of_another_thread(tmp_path, busy, cause):
    """Autograd's thread has nothing to do while the main thread waits; a busy one is not held."""
    export = (
        Export()
        .launch((0, 2), (10, 1000), thread=0)
        .sync(SYNC, 5, 1005, thread=0)
        .launch((1100, 1102), (1110, 1200), thread=1)
    )
    if busy:
        export.call("cudaEventQuery", 500, 501, thread=1)

    assert causes(export, tmp_path) == [cause]


def test_work_behind_a_copy_of_its_stream_waited_for_the_copy(tmp_path):
    export = (
        Export()
        .copy((0, 5), (10, 1000), source="pinned")
        .launch((5, 8), (1010, 1100))
        .launch((9, 11), (1105, 1200))
    )

    assert gaps(export, tmp_path, "evidence") == [
        (
            "copy-wait",
            "cudaLaunchKernel was called 995 ns before the GPU ran dry. Its stream was busy with "
            "H2D copy until 10 ns before the work started.",
        ),
        (
            "dependency",
            "cudaLaunchKernel was called 1.09 µs before the GPU ran dry. Its stream was busy with "
            "k until 5 ns before the work started.",
        ),
    ]


def test_a_stream_that_waits_for_an_event_behind_a_copy_of_another(tmp_path):
    def recorded(told: bool) -> Export:
        export = Export().launch((0, 2), (10, 20), stream=7)
        export.copy((2, 5), (15, 1000), source="pinned", stream=8)
        if told:
            api = "cudaStreamWaitEvent_v3020"
            export.sync(api, 6, 7, sync_type="stream-wait-event", stream=7)
        return export.launch((8, 10), (1010, 1100), stream=7)

    told = gaps(recorded(True), tmp_path, "evidence")
    assert told[0][0] == "copy-wait"
    assert "Its stream waited for an event; the last work to end" in told[0][1]
    assert "was H2D copy on stream 8 of GPU 0" in told[0][1]
    # Without the wait nothing proves that the copy was what it waited for.
    assert causes(recorded(False), tmp_path) == ["dependency"]


def test_work_that_waits_for_a_copy_of_another_gpu(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 100), device=0, stream=7)
        .copy((2, 5), (15, 5000), source="pinned", device=1, stream=9)
        .sync("cudaStreamWaitEvent_v3020", 6, 7, sync_type="stream-wait-event", stream=7)
        .launch((8, 10), (5010, 5100), device=0, stream=7)
    )

    assert causes(export, tmp_path) == ["copy-wait"]


def test_a_copy_out_of_pageable_memory_waits_for_the_cpu_to_move_it(tmp_path):
    def copied(source: str) -> Export:
        return (
            Export()
            .launch((0, 2), (10, 1000))
            .copy((1100, 9000), (8000, 8900), source=source, bytes=16_000_000)
        )

    proof = gaps(copied("pageable"), tmp_path, "evidence")
    assert proof == [
        (
            "copy-wait",
            "cudaMemcpyAsync was called 100 ns after the GPU ran dry. The CPU first moved its "
            "16.0 MB out of pageable memory.",
        )
    ]
    assert causes(copied("pinned"), tmp_path) == ["launch-late"]


def test_work_launched_late_that_then_waits_far_longer_is_not_late(tmp_path):
    """Launched 100 ns after the GPU ran dry, it started 200 µs later: nothing takes that long."""
    export = Export().launch((0, 2), (10, 1000)).launch((1100, 1102), (201_000, 202_000))

    assert causes(export, tmp_path) == ["dependency"]


def test_a_slow_graph_launch(tmp_path):
    export = (
        Export()
        .graph_whole((0, 5), (10, 1000))
        .graph_whole((1010, 1900), (1950, 3000))
        .launch((3010, 3900), (3950, 4000))
    )

    assert gaps(export, tmp_path, "call") == [
        ("graph-launch", "cudaGraphLaunch"),
        ("launch-late", "cudaLaunchKernel"),
    ]


def test_instantiating_the_graph_that_comes_next(tmp_path):
    def instantiated(graph: bool) -> Export:
        export = Export().launch((0, 2), (10, 1000)).call("cudaGraphInstantiate", 1010, 1800)
        if graph:
            return export.graph_launch((1810, 1820), [(1900, 1950), (1950, 1980)])
        return export.launch((1810, 1820), (1900, 1950))

    assert causes(instantiated(graph=True), tmp_path) == ["graph-launch"]
    assert causes(instantiated(graph=False), tmp_path) == ["launch-late"]


def test_the_nodes_of_a_running_graph_were_queued(tmp_path):
    """The call goes on while the first nodes run already."""
    export = Export().graph_launch((0, 900), [(100, 200), (300, 400), (500, 600)])

    assert causes(export, tmp_path) == ["dependency", "dependency"]


def test_an_allocation_of_the_launching_thread_counts_and_that_of_another_does_not(tmp_path):
    def allocated(thread: int) -> Export:
        return (
            Export()
            .launch((0, 2), (10, 1000))
            .call("cudaMalloc_v3020", 1010, 1900, thread=thread)
            .launch((1910, 1912), (1920, 2000))
        )

    mine = gaps(allocated(0), tmp_path, "call", "evidence")
    assert mine == [
        (
            "allocation",
            "cudaMalloc",
            "cudaLaunchKernel was called 910 ns after the GPU ran dry. Thread 1000 "
            "spent 890 ns in cudaMalloc.",
        )
    ]
    assert causes(allocated(1), tmp_path) == ["launch-late"]


def test_the_profiler_is_blamed_on_the_launching_thread_only(tmp_path):
    def profiled(name: str, thread: int) -> Export:
        return (
            Export()
            .launch((0, 2), (10, 1000))
            .overhead(1010, 1900, name=name, thread=thread)
            .launch((1910, 1912), (1920, 2000))
        )

    mine = gaps(profiled("flush", 0), tmp_path, "evidence")
    assert mine == [
        ("profiler", "The profiler ('flush') held thread 1000 up for 890 ns of the gap.")
    ]
    assert causes(profiled("flush", 1), tmp_path) == ["launch-late"]
    for own in (
        "dlopen(libcublas.so)",
        "Runtime Triggered Module Loading",
        "Lazy Function Loading",
    ):
        assert causes(profiled(own, 0), tmp_path) == ["launch-late"]


def test_work_whose_launch_was_not_recorded(tmp_path):
    export = Export().launch((0, 2), (10, 20)).kernel_without_launch((50, 60))

    assert gaps(export, tmp_path, "call", "evidence") == [
        ("unknown", None, "The launch call of the next work was not recorded.")
    ]


def test_where_the_cpu_was_while_a_launch_was_late(tmp_path):
    export = Export().launch((0, 2), (10, 100))
    for step in range(2):
        now = 10_000 * step
        export.range(f"step_{step}", now + 50, now + 9_000)
        export.range("data_loading", now + 100, now + 6_000)
        export.call("cudaMalloc_v3020", now + 1_000, now + 2_000)
        export.launch((now + 7_000, now + 7_100), (now + 7_200, now + 10_100))

    result = ask(ANALYSIS, export, tmp_path)

    columns = ("range_pattern", "where", "gaps", "idle_ns")
    assert rows(result, "late", *columns) == [
        ("step_#/data_loading", "outside CUDA", 2, 2 * 4_900),
        ("step_#", "outside CUDA", 2, 2 * 1_000),
        ("(unattributed)", "launch in flight", 2, 2 * 100),
        ("step_#", "cudaLaunchKernel", 2, 2 * 100),
    ]
    # The allocation is a cause of its own: together they are the gaps.
    assert rows(result, "causes", "cause", "gaps", "idle_ns") == [
        ("launch-late", 2, 2 * 6_100),
        ("allocation", 2, 2 * 1_000),
    ]
    assert sum(row[0] for row in rows(result, "late", "share_pct")) == pytest.approx(100)
    proof = rows(result, "gaps", "evidence")
    assert proof[1] == (
        "cudaLaunchKernel was called 6.90 µs after the GPU ran dry. Thread 1000 spent 4.90 µs "
        "outside CUDA, 1.00 µs in cudaMalloc in step_1/data_loading, 1.00 µs outside CUDA in "
        "step_1.",
    )
    late = next(f for f in result.findings if f.evidence.row["cause"] == "launch-late")
    assert "9.80 µs of that was" in late.message
    assert late.message.endswith("in step_#/data_loading.")
    assert late.action.startswith("Take the CPU work between launches out of the loop")


def test_long_work_between_launches_is_to_be_taken_out_of_the_loop(tmp_path):
    export = Export().launch((0, 2), (10, 100))
    for step in range(2):
        now = 1_000_000 * step
        export.range("data_loading", now + 100, now + 600_000)
        export.launch((now + 700_000, now + 700_100), (now + 700_200, now + 1_000_100))

    (finding,) = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.endswith(" of that was Python code in data_loading.")
    assert finding.action.startswith("Take this CPU work out of the loop")


def test_the_cpu_time_of_a_library_is_not_the_programs(tmp_path):
    export = Export().launch((0, 2), (10, 100))
    for step in range(2):
        now = 1_000_000 * step
        export.range("ncclAllReduce", now + 100, now + 600_000)
        export.launch((now + 700_000, now + 700_100), (now + 700_200, now + 1_000_100))

    (finding,) = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.endswith(" of that was CPU code of a library in ncclAllReduce.")
    assert finding.action.startswith("Launch less often")


def test_warm_up_does_not_make_short_gaps_long_work(tmp_path):
    """500 ms of the first step's Python, and 20 µs in each of the later ones."""
    export, now = Export().launch((0, 2), (10, 100)), 100
    for step in range(9):
        python = 20_000 if step else 500_000_000
        start = now + python
        export.range(f"step_{step}", now, start + 20)
        export.launch((start, start + 5), (start + 10, start + 1_010))
        now = start + 1_010

    findings = ask(ANALYSIS, export, tmp_path).findings
    late = [f for f in findings if f.evidence.row.get("cause") == "launch-late"]

    assert "Nearly all of it was" in late[0].message
    assert late[0].action.startswith("Launch less often")


def test_the_evidence_names_the_last_wait_of_the_thread(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 100_000), stream=7)
        .launch((2, 4), (10, 130_000), stream=8)
        .sync(SYNC, 99_000, 101_000, stream=7)
        .launch((150_000, 150_002), (150_010, 150_100))
    )

    assert gaps(export, tmp_path, "evidence") == [
        (
            "launch-late",
            "cudaLaunchKernel was called 20.0 µs after the GPU ran dry. Thread 1000 "
            "spent 20.0 µs outside CUDA.",
        )
    ]


def test_a_thread_that_the_system_took_off_the_cpu(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 100))
        .off_cpu((200, 700), (5000, 5001))
        .off_cpu((150, 800), thread=1)
        .launch((1000, 1002), (1010, 1100))
        .call("cudaEventQuery", 1200, 1201, thread=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "late", "where", "idle_ns") == [
        ("off the CPU", 500),
        ("outside CUDA", 400),
        ("launch in flight", 8),
        ("cudaLaunchKernel", 2),
    ]


def test_two_processes_on_one_gpu_are_kept_apart(tmp_path):
    """Work of either ends the gap; the thread that launched it answers, and no other."""
    export = (
        Export()
        .range("train", 0, 2000, process=1)
        .range("serve", 0, 2000, process=2)
        .launch((0, 2), (10, 100), process=1)
        .call("cudaMalloc_v3020", 100, 490, process=1)
        .launch((500, 502), (510, 600), process=2)
        .sync(SYNC, 505, 603, process=2)
        .launch((700, 702), (710, 800), process=2)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "late", "range_pattern", "where", "idle_ns")[0] == (
        "serve",
        "outside CUDA",
        402,
    )
    # The wait of 98 ns cost no more than that: the launch would have come so much earlier.
    assert rows(result, "causes", "cause", "idle_ns") == [("launch-late", 422), ("sync-drain", 98)]


def test_overlapping_work_of_two_processes_leaves_no_gap(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 100), process=1)
        .launch((0, 2), (50, 200), process=2)
        .launch((150, 152), (160, 300), process=1)
    )

    assert causes(export, tmp_path) == []


def test_one_thread_that_feeds_two_gpus_late_answers_on_both(tmp_path):
    export = Export()
    for device in (0, 1):
        export.launch((device, device + 1), (10, 100), device=device)
        start = 500 + 10 * device
        export.launch((start, start + 5), (start + 10, start + 20), device=device)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "device_id", "idle_ns") == [(0, 410), (1, 420)]
    late = rows(result, "late", "device_id", "idle_ns")
    assert sum(idle for device, idle in late if device == 0) == 410
    assert sum(idle for device, idle in late if device == 1) == 420


def test_a_deep_healthy_queue_is_never_called_starvation(tmp_path):
    """900 launches ahead, a hand-over of 1.5 µs between kernels: no cause but that."""
    export = Export()
    for number in range(900):
        start = 10_000_000 + 20_000 * number
        export.launch((4_000 * number, 4_000 * number + 4_000), (start, start + 18_500))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "gaps", "idle_ns") == [("dependency", 899, 899 * 1_500)]
    assert not rows(result, "late", "where")
    assert all(f.evidence.row.get("cause") != "launch-late" for f in result.findings)
    assert " 1.50 µs per gap (median)." in result.findings[0].message


@pytest.mark.parametrize("took_ms", [1, 5, 30])
@pytest.mark.parametrize("early_us", [0, 400, 900])
def test_a_first_launch_that_loads_code_held_its_kernel_up(tmp_path, took_ms, early_us):
    """CUDA loads code before it enqueues the kernel, though the call began while the GPU worked."""
    export, us, ms = Export(), 1_000, 1_000_000
    export.launch((0, 5 * us), (10 * us, ms), name="a")
    begins = ms - early_us * us
    ends = begins + took_ms * ms
    export.launch((begins, ends), (ends, ends + ms), name="b")
    later = ends + 10 * us
    export.launch((later, later + 5 * us), (ends + ms + us, ends + 2 * ms), name="a")

    [cause, *_] = causes(export, tmp_path)

    assert cause == "module-load"
