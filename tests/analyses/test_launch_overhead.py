"""The analysis `launch-overhead`: CPU time in launch calls, and the part that the GPU waits for."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.launch_overhead import ANALYSIS

US, MS = 1_000, 1_000_000
CALLS = ("api", "calls", "total_ns", "median_ns", "exposed_ns", "first_launch_ns")


def test_exposed_is_the_part_inside_an_idle_gap(tmp_path):
    #  GPU 10──20        40──50          the second call 15–35 is exposed from 20 on
    export = Export().launch((0, 5), (10, 20)).launch((15, 35), (40, 50))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", *CALLS) == [("cudaLaunchKernel", 2, 25, 12, 15, 5)]


def test_a_gap_of_another_gpu_exposes_nothing(tmp_path):
    export = (
        Export()
        .launch((0, 5), (10, 20), device=0)
        .launch((100, 110), (120, 130), device=0)
        .launch((6, 9), (10, 200), device=1)
        .launch((60, 70), (200, 210), device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "exposed_ns") == [(10,)]


def test_work_without_any_recorded_call(tmp_path):
    result = ask(ANALYSIS, Export().kernel_without_launch((10, 20)), tmp_path)
    assert rows(result, "calls", "calls") == []


def test_runtime_driver_and_graph_launches_have_rows_of_their_own(tmp_path):
    export = (
        Export()
        .launch((0, 5), (10, 20), name="a", api="cuLaunchKernelEx")
        .launch((5, 9), (20, 30), name="b", api="cudaLaunchKernelExC_v11060")
        .graph_launch((9, 12), [(30, 40), (40, 50)])
        .launch_without_kernel((12, 14))
        .call("cudaLaunchHostFunc_v10000", 14, 40)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "calls", "api", "calls", "total_ns") == [
        ("cuLaunchKernelEx", 1, 5),
        ("cudaLaunchKernelExC", 1, 4),
        ("cudaGraphLaunch", 1, 3),
        ("cudaLaunchKernel", 1, 2),
    ]


def test_every_function_of_the_cuda_api_is_a_row(tmp_path):
    export = Export().launch(call=(0, 10), kernel=(20, 30)).launch(call=(40, 70), kernel=(80, 90))
    export.call("cudaMalloc_v3020", 100, 160).sync("cudaStreamSynchronize_v3020", 200, 300)
    export.call("cudaGetDevice", 310, 311, thread=3).call("cudaGetDevice", 320, 323)

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("api", "does", "calls", "total_ns", "median_ns", "max_ns")
    assert rows(result, "api", *figures) == [
        ("cudaStreamSynchronize", "synchronize", 1, 100, 100, 100),
        ("cudaMalloc", "allocate", 1, 60, 60, 60),
        ("cudaLaunchKernel", "launch", 2, 40, 20, 30),
        ("cudaGetDevice", "other", 2, 4, 2, 3),
    ]
    assert sum(result.tables["api"]["share_pct"]) == pytest.approx(100)


def test_ranges_have_the_cpu_time_that_no_inner_range_has(tmp_path):
    """Two steps of 100 ns with a forward of 30 ns each; the other thread has a range of its own."""
    export = Export()
    for step in range(2):
        at = 1000 * step
        export.range(f"step_{step}", at, at + 100).range("forward", at + 10, at + 40)
        export.launch(call=(at + 12, at + 17), kernel=(at + 20, at + 90))
        export.call("cudaMalloc", at + 50, at + 53)
        export.range("load", at, at + 200, thread=2)
        export.call("cudaHostAlloc", at + 110, at + 111, thread=2)

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("range_path", "instances", "cpu_ns", "own_ns", "cuda_ns", "launches")
    assert rows(result, "ranges", *figures) == [
        ("load", 2, 400, 400, 2, 0),
        ("step_#", 2, 200, 140, 6, 0),
        ("step_#/forward", 2, 60, 60, 10, 2),
    ]


def slow_launches(*slow: int) -> Export:
    """20 steps of 20 kernels, launched one by one each 10 µs; some steps have a call of 4 ms."""
    export, at = Export(), 0
    for step in range(20):
        begin = at
        for number in range(20):
            took = 4 * MS if step in slow and number == 10 else 5 * US
            export.launch((at, at + took), (at + took + US, at + took + 3 * US), name=f"k{number}")
            at += took + 5 * US
        export.range(f"step_{step}", begin, at)
    return export


def test_few_long_launch_calls_are_no_reason_to_launch_less_often(tmp_path):
    [finding] = ask(ANALYSIS, slow_launches(5, 9, 15), tmp_path).findings

    values = finding.evidence.values
    assert (values["long_calls"], values["api"], values["kernel"]) == (3, "cudaLaunchKernel", "k10")
    assert "passed in 3 calls of more than 1.00 ms" in finding.message
    assert finding.action.startswith("Look at what these calls wait for")
    assert values["long_ns"] == pytest.approx(3 * 4 * MS, rel=0.05)


def test_what_launching_at_once_saves_is_said_by_gpu_idle(tmp_path):
    [finding] = ask(ANALYSIS, slow_launches(), tmp_path).findings

    assert finding.action.startswith("Launch less often")
    assert (finding.severity, finding.edit) == ("info", None)
    assert finding.time_at_stake_ns <= int(finding.evidence.values["late_idle_ns"] or 0)
