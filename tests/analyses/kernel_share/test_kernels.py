"""Kernels by time: sums, classes, names, and what is said of them."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.findings import Subject
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS
from traceview.traces.trace.load import load

FIGURES = ("short_name", "calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")


def test_kernels_of_one_name_are_added_up(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20), name="gelu<float>(int)")
        .launch((2, 4), (20, 60), name="gelu<float>(int)")
        .launch((4, 6), (60, 85), name="gelu<float>(int)")
        .launch((6, 8), (90, 115), name="add")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", *FIGURES) == [
        ("gelu", 3, 75, 25, 25, 10, 40),
        ("add", 1, 25, 25, 25, 25, 25),
    ]
    assert rows(result, "kernels", "name", "share_pct") == [
        ("gelu<float>(int)", 75.0),
        ("add", 25.0),
    ]
    (finding,) = result.findings
    assert finding.message == "gelu takes 75 ns, 75.0 % of kernel time."
    assert finding.time_at_stake_ns == 75
    assert finding.subject == Subject("kernel", "gelu<float>(int)")
    assert finding.evidence.row == {"name": "gelu<float>(int)"}
    # The GPU was busy for 95 ns, and idle for 5 and 0 between.
    assert finding.share_of_step_pct == pytest.approx(100 * 75 / 105)


def test_classes_of_each_gpu(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 40), name="matmul")
        .launch((1, 2), (40, 50), name="gelu")
        .launch((2, 3), (50, 60), name="add")
        .launch((0, 1), (10, 30), name="gelu", process=2, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "classes", "device_id", "class", "calls", "total_ns", "share_pct") == [
        (0, "gemm", 1, 30, 60.0),
        (0, "elementwise", 2, 20, 40.0),
        (1, "elementwise", 1, 20, 100.0),
    ]


def test_the_costliest_own_kernel_is_that_of_the_time_after_warm_up(tmp_path):
    """The trials of an autotuner are most of the time, and of a kernel that is fast in the end."""
    export = Export().range("warm_up", 0, 100)
    for trial in range(10):
        export.launch((5 * trial, 5 * trial + 2), (100 * trial, 100 * trial + 90), name="tuned")
    export.range("step_0", 100, 200)
    for place, (name, took) in enumerate((("tuned", 10), ("formula", 60), ("sum", 30))):
        start = 1000 + 100 * place
        export.launch((101 + place, 102 + place), (start, start + took), name=name)

    result = ask(ANALYSIS, export, tmp_path)

    (found,) = result.findings
    assert found.message == "formula takes 60 ns, 60.0 % of kernel time after warm-up."
    assert found.time_at_stake_ns == pytest.approx(60, abs=10)  # and the pitch of a launch
    # The table still has all that ran.
    assert rows(result, "kernels", "short_name", "total_ns")[0] == ("tuned", 910)


def test_a_warm_up_step_is_left_out_with_all_its_kernels(tmp_path):
    """The CPU is ahead: most of the first step runs while the second is launched."""
    export = Export()
    for step in range(3):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        for place, (name, took) in enumerate((("slow", 300), ("fast", 200))):
            call = 100 * step + 10 + 10 * place
            start = 20 + 500 * step + 300 * place
            export.launch((call, call + 2), (start, start + took), name=name)

    (found,) = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == "slow takes 600 ns, 60.0 % of kernel time after warm-up."
    assert found.time_at_stake_ns == 600


def test_a_recording_of_warm_up_alone_has_its_largest_kernel(tmp_path):
    export = Export().range("warm_up", 0, 100).launch((1, 2), (10, 20), name="tuned")

    (found,) = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == "tuned takes 10 ns, 100.0 % of kernel time."


def test_kernels_of_one_base_name_are_told_apart(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), name="void at::elementwise<4, at::GeluCUDAKernelImpl(int)>")
        .launch((1, 2), (20, 25), name="void at::elementwise<4, at::FillFunctor<float>>")
        .launch((2, 3), (25, 27), name="gemm<float>")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert [row[0].partition(" ")[2] for row in rows(result, "kernels", "label")] == [
        "at::elementwise GeluCUDAKernelImpl",
        "at::elementwise FillFunctor",
        "",
    ]


def test_a_note_says_what_whole_graphs_hide(tmp_path):
    export = (
        Export()
        .range("replay", 0, 9)
        .graph_whole((1, 2), (10, 40))
        .graph_whole((3, 4), (50, 80), graph_id=2)
        .launch((5, 6), (90, 100))
    )

    result = ask(ANALYSIS, export, tmp_path)
    nodes = ask(ANALYSIS, Export().graph_launch((1, 2), [(10, 40)]), tmp_path)

    assert rows(result, "kernels", "calls", "share_pct") == [(1, 100.0)]
    [note] = result.notes
    assert note.startswith("2 CUDA graph launches (60 ns of GPU time) were recorded whole")
    assert "traceview record --graph-trace node" in note
    assert not nodes.notes


def test_the_tile_of_a_gemm_is_read_off_its_name(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), name="nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN")
        .launch((1, 2), (20, 25), name="gelu<128x64>")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "tile") == [("192x192 64x3 bf16",), (None,)]


@pytest.mark.parametrize("name", ["queue_full", "threads", "sync_sites", "two_gpus", "training"])
def test_a_wrapper_alone_in_its_trace_is_named_by_what_it_does(unpack, name):
    result = ANALYSIS.run(load(unpack(name)))

    wrapped = [
        row[1] for row in rows(result, "kernels", "short_name", "label") if row[0] == "Kernel2"
    ]
    assert wrapped
    assert all(label.startswith("CUTLASS fp32 GEMM ") for label in wrapped)
    assert not any("Kernel2 takes" in finding.message for finding in result.findings)


@pytest.mark.parametrize(("alone_ns", "said"), [(100_000, False), (100, True)])
def test_a_kernel_that_hardly_runs_is_not_told(alone_ns, said, tmp_path):
    export = Export().launch((0, 2), (10, 60), name="final_error")
    export.copy((3, 4), (60, 60 + alone_ns), source="pinned")

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert any("final_error" in each for each in messages) == said
