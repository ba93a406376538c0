from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.analyses.launch_overhead import ANALYSIS

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
