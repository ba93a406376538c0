"""The analysis `sync-stalls`: waits split into benign time and the idle time after them."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.sync_stalls import ANALYSIS

US = 1_000
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
    assert result.findings[0].evidence.values["idle_ns"] == 30
    assert result.findings[0].severity == "info"  # 30 % of the time, but 30 ns


def test_what_is_saved_without_a_wait_is_replayed(tmp_path):
    """Steps of 100 µs: a kernel of 40 µs, the wait for it, 18 µs of CPU work, a kernel of 10 µs.

    30 µs of idle time follow the wait. Without it the CPU takes 53 µs per step, and 3 µs for a
    synchronization with nothing to wait for: the 20 µs before the next step shrink, too.
    """
    export = Export()
    for step in range(20):
        at = 100 * US * step
        export.range(f"step_{step}", at, at + 99 * US)
        export.launch((at, at + 2 * US), (at + 10 * US, at + 50 * US))
        export.sync("cudaStreamSynchronize_v3020", at + 5 * US, at + 52 * US)
        export.launch((at + 70 * US, at + 72 * US), (at + 80 * US, at + 90 * US))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.saving == "about"
    assert finding.edit is not None
    idle_ns = int(finding.evidence.values["idle_ns"] or 0)
    assert 28 * 19 * US <= idle_ns <= 30 * 19 * US
    assert finding.time_at_stake_ns == pytest.approx((100 - 56) * 19 * US, rel=0.05)


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


def one_wait(export: Export) -> Export:
    """A kernel, the wait for it, and a kernel that is launched 30 ns after it has ended."""
    export.launch((1, 2), (10, 50)).sync("cudaStreamSynchronize_v3020", 5, 52)
    return export.launch((70, 72), (80, 90))


def two_steps_with_one_wait() -> Export:
    return one_wait(Export().range("step_0", 0, 60).range("step_1", 60, 100))


def test_idle_time_behind_a_selected_wait_counts_though_the_next_step_is_not_selected(tmp_path):
    result = ask(ANALYSIS, two_steps_with_one_wait(), tmp_path, include=("step_0",))

    assert rows(result, "sites", "api", "idle_after_ns") == [("cudaStreamSynchronize", 30)]


def test_idle_time_behind_a_wait_that_is_not_selected_is_reported_by_gpu_idle(tmp_path):
    result = ask(ANALYSIS, two_steps_with_one_wait(), tmp_path, include=("step_1",))

    assert rows(result, "sites", "api") == []
    assert result.summary["idle_caused_ns"] == 0


def test_a_range_that_only_waits_has_the_cost_of_its_wait(tmp_path):
    export = one_wait(Export().range("print", 4, 60))

    [finding] = ask(ANALYSIS, export, tmp_path, include=("print",)).findings

    assert (finding.severity, finding.evidence.values["idle_ns"]) == ("info", 30)


def test_a_copy_node_of_a_graph_is_no_wait(tmp_path):
    export = Export().copy((0, 5), (10, 20), api="cudaGraphLaunch_v10000", source="pageable")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api") == []


def test_a_driver_call_inside_a_runtime_call_waits_once(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .call("cuStreamSynchronize", 6, 51)
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", *SITE) == [("cudaStreamSynchronize", 1, 47, 40, 30)]
    assert rows(result, "calls", "api", "wait_ns", "nested_ns") == [
        ("cudaStreamSynchronize", 47, 0),
        ("cuStreamSynchronize", 45, 45),
    ]
    assert result.summary == {
        "synchronizations": 2,
        "synchronization_wait_ns": 47,
        "blocking_copy_wait_ns": 0,
        "idle_caused_ns": 30,
        "steady_idle_caused_ns": 30,
    }


def test_blocking_copies_have_a_total_of_their_own(tmp_path):
    export = Export().launch((0, 2), (10, 50))
    export.copy((5, 80), (50, 78), kind="D2H", destination="pageable")

    result = ask(ANALYSIS, export, tmp_path)

    assert result.summary["synchronization_wait_ns"] == 0
    assert result.summary["blocking_copy_wait_ns"] == 75


def test_a_finding_counts_the_calls_and_waits_after_warm_up_alone(tmp_path):
    """Its idle time is that after set-up: with the calls of set-up beside it nothing would fit."""
    export = Export()
    for step in range(4):
        at = 1_000 * step
        # The first step waits twice as long.
        end = at + (800 if step == 0 else 450)
        export.range(f"step_{step}", at, at + 999)
        export.launch((at, at + 2), (at + 10, end))
        export.sync("cudaStreamSynchronize_v3020", at + 5, end + 2)
        export.launch((end + 20, end + 22), (end + 25, end + 50))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "calls") == [(4,)]
    [finding] = result.findings
    assert finding.evidence.values["idle_ns"] == 3 * 25
    assert finding.message.endswith(" after 3 calls. The CPU spends 1.34 µs in them.")


def test_an_allocation_that_fills_a_gap_is_what_it_is_due_to(tmp_path):
    export = (
        Export()
        .range("traceview:sync:train.py:9 in step: free() [torch.cuda.empty_cache]", 55, 150)
        .launch((0, 2), (10, 50))
        .call("cudaFree_v3020", 60, 140)
        .launch((150, 152), (160, 200))
    )

    result = ask(ANALYSIS, export, tmp_path)

    columns = ("api", "call_site", "hint", "wait_ns", "benign_ns", "idle_within_ns")
    assert rows(result, "sites", *columns, "idle_after_ns") == [
        ("cudaFree", "train.py:9 in step", "torch.cuda.empty_cache", 80, 0, 80, 80)
    ]
    assert "during 1 call to cudaFree" in result.findings[0].message
    assert result.findings[0].action.startswith("If a longer run repeats this")


def test_allocations_that_repeat_are_to_be_made_before_the_loop(tmp_path):
    export = Export().range("traceview:sync:train.py:9 in step: free() [empty_cache]", 55, 350)
    export.launch((0, 2), (10, 50)).call("cudaFree_v3020", 60, 140).launch((150, 152), (160, 200))
    export.call("cudaFree_v3020", 210, 290).launch((300, 302), (310, 350))

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert "during 2 calls to cudaFree" in finding.message
    assert finding.action.startswith("Allocate before the loop")


def test_a_copy_and_the_wait_for_it_are_one_wait_in_a_replay(tmp_path):
    """Without the wait of one of them the other would take as long."""
    export = Export()
    for step in range(20):
        at = 100 * US * step
        export.range(f"step_{step}", at, at + 99 * US)
        export.launch((at, at + 2 * US), (at + 10 * US, at + 50 * US))
        copied = (at + 51 * US, at + 53 * US)
        export.copy((at + 3 * US, at + 54 * US), copied, kind="D2H", destination="pageable")
        export.sync("cudaStreamSynchronize_v3020", at + 55 * US, at + 57 * US)
        export.launch((at + 70 * US, at + 72 * US), (at + 80 * US, at + 90 * US))

    found = ask(ANALYSIS, export, tmp_path).findings

    assert all(each.time_at_stake_ns > 19 * 30 * US for each in found)
