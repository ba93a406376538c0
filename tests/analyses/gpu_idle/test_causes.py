"""The analysis `gpu-idle`: busy and idle time, and the cause of each gap."""

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

DEVICE = ("device_id", "span_ns", "busy_ns", "idle_ns")
CAUSE = ("cause", "gaps", "idle_ns")


def test_streams_that_overlap_are_not_added_up(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 30), stream=7)
        .launch((1, 2), (20, 40), stream=8)
        .launch((35, 36), (60, 70), stream=7)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 60, 40, 20)]
    assert rows(result, "devices", "busy_pct") == [(100 * 40 / 60,)]


def test_copies_sets_and_whole_graphs_keep_the_gpu_busy(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20))
        .copy((1, 2), (20, 30))
        .set((2, 3), (30, 40))
        .graph_whole((3, 4), (40, 50))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 40, 40, 0)]
    assert rows(result, "gaps", "duration_ns") == []


def test_two_gpus_are_apart_and_two_processes_on_one_gpu_together(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), process=1, device=0)
        .launch((0, 1), (15, 40), process=2, device=0)
        .launch((2, 3), (100, 110), process=1, device=1)
        .launch((4, 5), (150, 160), process=1, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 30, 30, 0), (1, 60, 20, 40)]


def test_the_cause_is_why_the_next_work_did_not_start_earlier(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20))
        .launch((12, 14), (25, 30))  # queued at 14, before the GPU ran dry at 20
        .launch((40, 42), (45, 60))  # launched at 40: the GPU was idle from 30 on
        .sync("cudaStreamSynchronize_v3020", 43, 62)  # the GPU runs dry at 60, inside
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "causes", *CAUSE)) == [
        ("dependency", 1, 5),
        ("launch-late", 2, 15 + 1),
        ("sync-drain", 1, 19),  # as long as the wait
    ]
    assert rows(result, "gaps", "start_ns", "duration_ns", "cause") == [
        (60, 20, "sync-drain"),
        (30, 15, "launch-late"),
        (20, 5, "dependency"),
    ]
    assert sum(row[0] for row in rows(result, "causes", "idle_ns")) == 40


def test_a_wait_that_goes_on_after_the_launch_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 100))
        .sync("cudaEventSynchronize_v3020", 50, 5000, thread=3)
        .launch((500, 505), (510, 600))
        .launch((1000, 1005), (1010, 1100))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 2, 820)]


def test_a_wait_for_another_gpu_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 100), device=0)
        .launch((2, 4), (5, 200), device=1)
        .sync("cudaStreamSynchronize_v3020", 50, 201, thread=1, device=1)
        .launch((1000, 1005), (1010, 1100), device=0)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 1, 910)]


def test_a_blocking_copy_is_not_the_cause_of_the_gap_before_it(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 1000))
        .copy((50, 1300), (1100, 1200), kind="D2H", source="device", destination="pageable")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("dependency", 1, 100)]


def test_a_wait_of_another_process_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20), process=1)
        .sync("cudaDeviceSynchronize_v3020", 5, 25, process=2)
        .launch((30, 32), (40, 50), process=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 1, 20)]


def test_loading_code_for_a_first_launch_is_a_cause_of_its_own(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000), name="a")
        .call("cuLibraryLoadData", 1100, 1700)
        .launch((1700, 1705), (2000, 3000), name="b")
        .launch((3200, 3205), (4000, 5000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "causes", *CAUSE)) == [
        ("launch-late", 2, 1000 + 400),
        ("module-load", 1, 600),
    ]
    assert rows(result, "devices", "one_time_idle_ns", "steady_busy_pct") == [
        (1000, 100 * 2990 / 3990)
    ]


def test_a_first_launch_behind_a_little_loading_is_late_and_counts_once(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000), name="a")
        .call("cuLibraryLoadData", 1200, 1300)
        .launch((1700, 1705), (2000, 3000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "idle_ns", "steady_idle_ns") == [
        ("launch-late", 900, 0),
        ("module-load", 100, 0),
    ]


def test_what_comes_before_the_first_step_is_warm_up(tmp_path):
    export = Export().launch((0, 2), (10, 20)).launch((50, 52), (60, 70))
    for step in range(2):
        now = 100 + 100 * step
        export.range(f"step_{step}", now, now + 50)
        export.launch((now + 20, now + 22), (now + 30, now + 40))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "idle_ns", "steady_idle_ns") == [
        ("launch-late", 40 + 60 + 90, 90)
    ]
    assert rows(result, "devices", "one_time_idle_ns", "steady_busy_pct") == [(100, 100 * 20 / 110)]


def test_a_long_first_launch_loads_its_kernel_lazily(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1_000), name="a")
        .launch((1_500, 901_500), (910_000, 920_000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "idle_ns", "steady_idle_ns") == [
        ("module-load", 908_500, 0),
        ("launch-late", 500, 0),
    ]


def test_work_without_a_launch_call_has_no_known_cause(tmp_path):
    export = Export().launch((0, 2), (10, 20)).kernel_without_launch((50, 60))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("unknown", 1, 30)]
