"""The analysis `sync-stalls`: waits split into benign time and the idle time after them."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.conftest import DATA
from traceview.analyses.sync_stalls.analysis import ANALYSIS
from traceview.trace.load import load

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
    assert result.findings[0].severity == "info"  # 30 % of the time, but 30 ns


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

    assert (finding.severity, finding.time_at_stake_ns) == ("info", 30)


def test_a_copy_node_of_a_graph_is_no_wait(tmp_path):
    export = Export().copy((0, 5), (10, 20), api="cudaGraphLaunch_v10000", source="pageable")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api") == []


LOSS = "traceview:sync:train.py:31 in step: loss.item() [Tensor.item]"


def steps_with_a_loss(export: Export) -> Export:
    """Three steps of 100 ns: a kernel at 10 to 50, and a wait for it at 5 to 52, marked."""
    for step in range(3):
        start = 100 * step
        export.range(f"step_{step}", start, start + 90).range(LOSS, start + 4, start + 60)
        export.launch((start, start + 2), (start + 10, start + 50))
        export.sync("cudaStreamSynchronize_v3020", start + 5, start + 52)
    return export


def test_a_marked_wait_has_its_line_and_all_steps_are_one_row(tmp_path):
    result = ask(ANALYSIS, steps_with_a_loss(Export()), tmp_path)

    columns = ("call_site", "hint", "source", "range_path", "calls", "wait_ns", "benign_ns")
    assert rows(result, "sites", *columns) == [
        ("train.py:31 in step", "Tensor.item", "loss.item()", "step_#", 3, 141, 120)
    ]
    (found,) = result.findings
    assert found.message.startswith("train.py:31 in step, `loss.item()`, leaves the GPU idle for ")


def test_marks_are_no_ranges_of_the_program(tmp_path):
    trace = steps_with_a_loss(Export()).load(tmp_path)

    assert {row["name"] for row in trace.ranges.rows()} == {"step_0", "step_1", "step_2"}
    assert len(trace.call_sites) == 3


def test_two_lines_in_one_range_are_two_rows(tmp_path):
    other = LOSS.replace(":31", ":32")
    export = (
        Export()
        .range(LOSS, 4, 60)
        .range(other, 104, 160)
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .launch((100, 102), (110, 150))
        .sync("cudaStreamSynchronize_v3020", 105, 152)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "call_site", "range_path", "calls", "idle_after_ns") == [
        ("train.py:31 in step", "(unattributed)", 1, 60),
        ("train.py:32 in step", "(unattributed)", 1, 0),
    ]


def test_a_mark_of_another_thread_names_nothing(tmp_path):
    export = (
        Export()
        .range(LOSS, 0, 100, thread=1)
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "call_site", "hint") == [(None, None)]


def test_a_wait_after_the_mark_is_not_of_its_line(tmp_path):
    export = Export().range(LOSS, 0, 5).sync("cudaStreamSynchronize_v3020", 5, 52)

    assert rows(ask(ANALYSIS, export, tmp_path), "sites", "call_site") == [(None,)]


def test_without_a_mark_the_call_chain_gives_the_hint(tmp_path):
    frames = ("cudaStreamSynchronize", "at::native::_local_scalar_dense_cuda(at::Tensor const&)")
    export = (
        Export()
        .chain(7, *frames, "torch::autograd::THPVariable_item(_object*, _object*)", "main")
        .sync("cudaStreamSynchronize_v3020", 5, 52, callchain=7)
        .sync("cudaStreamSynchronize_v3020", 60, 62)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert set(rows(result, "sites", "hint", "calls")) == {("Tensor.item", 1), (None, 1)}
    assert "call chains" in result.notes[0]


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
    assert finding.time_at_stake_ns == 3 * 25
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
        ("cudaFree", "train.py:9 in step", "torch.cuda.empty_cache", 80, 0, 80, 110)
    ]
    assert "during 1 call to cudaFree" in result.findings[0].message
    assert result.findings[0].action.startswith("Check whether every step does this")


def test_allocations_that_repeat_are_to_be_made_before_the_loop(tmp_path):
    export = Export().range("traceview:sync:train.py:9 in step: free() [empty_cache]", 55, 350)
    export.launch((0, 2), (10, 50)).call("cudaFree_v3020", 60, 140).launch((150, 152), (160, 200))
    export.call("cudaFree_v3020", 210, 290).launch((300, 302), (310, 350))

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert "during 2 calls to cudaFree" in finding.message
    assert finding.action.startswith("Allocate before the loop")


def test_the_calls_of_one_line_are_one_finding(tmp_path):
    mark = "traceview:sync:train.py:7 in step: x.cpu() [Tensor.cpu]"
    export = Export().range(mark, 4, 400)
    export.launch((0, 2), (10, 50)).copy((5, 80), (50, 78), kind="D2H", destination="pageable")
    export.sync("cudaStreamSynchronize_v3020", 81, 90).launch((300, 302), (310, 350))
    export.sync("cudaStreamSynchronize_v3020", 310, 360).launch((390, 392), (395, 399))

    result = ask(ANALYSIS, export, tmp_path)

    assert len(result.tables["sites"]) == 2
    (found,) = result.findings
    assert found.time_at_stake_ns == sum(row[0] for row in rows(result, "sites", "idle_after_ns"))


def synchronized(*, copies):
    """Two steps that end in a synchronization, after a copy to the host in those of `copies`."""
    export = Export()
    for number in range(2):
        at = 80 * number
        export.launch((at, at + 2), (at + 10, at + 50))
        if number in copies:
            call, copy = (at + 3, at + 5), (at + 50, at + 60)
            export.copy(call, copy, kind="D2H", source="device", destination="pinned")
        export.sync("cudaStreamSynchronize_v3020", at + 6, at + 62)
    return export.launch((160, 162), (170, 210))


def actions(export, folder):
    return [finding.action for finding in ask(ANALYSIS, export, folder).findings]


def test_a_wait_for_no_result_is_to_be_taken_out(tmp_path):
    [action] = actions(synchronized(copies=()), tmp_path)

    assert action.startswith("Remove it if the CPU needs nothing from the GPU here")


def test_a_wait_for_a_result_is_to_come_less_often(tmp_path):
    [action] = actions(synchronized(copies=(0, 1)), tmp_path)

    assert action.startswith("Read results on the CPU less often")


def test_a_result_read_before_the_last_synchronization_is_none_of_the_next(tmp_path):
    export = synchronized(copies=()).copy(
        (163, 165), (210, 220), kind="D2H", source="device", destination="pinned"
    )
    export.sync("cudaStreamSynchronize_v3020", 166, 222).launch((240, 242), (250, 290))
    export.sync("cudaStreamSynchronize_v3020", 243, 292).launch((310, 312), (320, 350))

    first, *others = rows(ask(ANALYSIS, export, tmp_path), "sites", *SITE)
    [action] = actions(export, tmp_path)

    # 30 ns of idle time after each wait, for a result after one of four.
    assert (first[1], first[4], others) == (4, 140, [])
    assert action.startswith("Remove it")


def test_what_another_thread_reads_is_no_reason_to_wait(tmp_path):
    export = synchronized(copies=())
    export.copy((3, 5), (50, 55), kind="D2H", destination="pinned", stream=9, thread=4)

    [action] = actions(export, tmp_path)

    assert action.startswith("Remove it")


def test_shared_memory_is_waited_for_without_a_result():
    trace = load(DATA / "workloads" / "unified_memory.sqlite.xz")

    [waited] = [each for each in ANALYSIS.compute(trace).findings if "Synchronize" in each.message]

    assert waited.action.startswith("Remove it")
    assert "memory that the GPU also uses" in waited.action


def test_a_printed_loss_is_a_result():
    [found] = ANALYSIS.compute(load(DATA / "mlp_print_loss.sqlite.xz")).findings

    assert "loss.item()" in found.message
    assert found.action.startswith("Read results on the CPU less often")


def test_a_finding_names_its_line_and_the_row_and_gap_that_show_it(tmp_path):
    result = ask(ANALYSIS, steps_with_a_loss(Export()), tmp_path)

    [finding] = result.findings
    subject, evidence = finding.subject, finding.evidence
    assert (subject.kind, subject.file, subject.line) == ("line", "train.py", 31)
    [row] = list(result.tables["sites"].rows())
    assert evidence.table == "sites"
    assert {name: row[name] for name in evidence.row} == evidence.row
    assert finding.time_at_stake_ns == row["steady_idle_after_ns"] == 60
    assert (evidence.start_ns, evidence.end_ns) == (150, 210)
    # Two steps of 40 ns of work after the first one, which is warm-up.
    assert finding.share_of_step_pct == pytest.approx(100 * 60 / (60 + 80))
