from tests.analyses.ask import ask, rows
from tests.build import Export
from traceview.analyses.sync_stalls import ANALYSIS

SITE = ("api", "calls", "wait_ns", "benign_ns", "idle_after_ns")


def test_a_wait_while_the_gpu_works_costs_nothing(tmp_path):
    #  GPU 10──────────50 50──────80, the second kernel is queued before the wait ends
    export = (
        Export()
        .launch((0, 2), (10, 50))
        .launch((2, 4), (50, 80))
        .sync("cudaEventSynchronize_v3020", 5, 51, sync_type="event")
        .launch((60, 62), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", *SITE) == [("cudaEventSynchronize", 1, 46, 41, 0)]
    assert not result.findings


def test_a_wait_that_leaves_the_gpu_idle(tmp_path):
    export = (
        Export()
        .range("step", 0, 100)
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", *SITE) == [("cudaStreamSynchronize", 1, 47, 40, 30)]
    assert rows(result, "sites", "range_path", "call_site", "hint") == [("step", None, None)]
    assert result.findings[0].time_at_stake_ns == 30
    assert result.findings[0].severity == "high"


def test_a_second_wait_in_the_same_gap_is_not_blamed(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .sync("cudaDeviceSynchronize_v3020", 53, 54, sync_type="context")
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "api", "idle_after_ns") == [
        ("cudaStreamSynchronize", 30),
        ("cudaDeviceSynchronize", 0),
    ]


def test_a_wait_on_the_gpu_does_not_count(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 50))
        .sync("cudaStreamWaitEvent_v3020", 5, 6, sync_type="stream-wait-event")
        .launch((7, 9), (60, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api") == []
    assert rows(result, "sites", "api") == []


def test_blocking_calls_are_listed_synchronizations_first(tmp_path):
    export = (
        Export()
        .call("cudaMalloc_v3020", 0, 1000)
        .call("cuStreamSynchronize", 1000, 1010)
        .copy((1010, 1110), (1020, 1100), api="cudaMemcpy_v3020", kind="D2H")
        .copy((1110, 1120), (1200, 1300), source="pinned")
        .call("cuModuleLoadData", 1400, 1405)
        .call("cudaMallocAsync_v11020", 1500, 1505)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api", "calls", "wait_ns") == [
        ("cuStreamSynchronize", 1, 10),
        ("cudaMemcpy", 1, 100),
        ("cudaMalloc", 1, 1000),
        ("cuModuleLoadData", 1, 5),
    ]


def test_an_asynchronous_copy_of_pageable_memory_blocks(tmp_path):
    export = Export().copy((0, 90), (10, 80), source="pageable")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", *SITE) == [("cudaMemcpyAsync", 1, 90, 70, 0)]


def test_a_wait_for_one_of_two_gpus(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 50), device=0)
        .launch((2, 4), (10, 200), device=1)
        .sync("cudaStreamSynchronize_v3020", 5, 105, device=0)
        .launch((110, 112), (120, 130), device=0)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", *SITE) == [("cudaStreamSynchronize", 1, 100, 40, 70)]


def test_equal_correlation_ids_of_two_processes_wait_for_their_own_gpu(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 50), process=1, device=0)
        .launch((0, 2), (10, 90), process=2, device=1)
        .sync("cudaStreamSynchronize_v3020", 5, 95, process=1, device=0)
        .sync("cudaStreamSynchronize_v3020", 5, 95, process=2, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "calls", "wait_ns", "benign_ns") == [(2, 180, 120)]


def test_idle_time_behind_a_selected_wait_counts_though_the_next_step_is_not_selected(tmp_path):
    export = (
        Export()
        .range("step_0", 0, 60)
        .range("step_1", 60, 100)
        .launch((1, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path, include=("step_0",))

    assert rows(result, "sites", "api", "idle_after_ns") == [("cudaStreamSynchronize", 30)]


def test_a_copy_node_of_a_graph_is_no_wait(tmp_path):
    export = Export().copy((0, 5), (10, 20), api="cudaGraphLaunch_v10000", source="pageable")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api") == []
