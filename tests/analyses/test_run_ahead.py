"""The analysis `run-ahead`: queue wait, queue depth, lead of steps, and the verdict on a GPU."""

import numpy as np
import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.run_ahead import ANALYSIS

WAIT = ("queue_wait_median_ns", "queue_wait_p90_ns", "queue_wait_max_ns")


def test_queue_wait_and_depth(tmp_path):
    #   calls    0–2, 2–4, 4–6     waits  8−2, 20−4, 30−6
    #   kernels  8–20, 20–30, 30–45
    export = Export().launch((0, 2), (8, 20)).launch((2, 4), (20, 30)).launch((4, 6), (30, 45))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "streams", *WAIT) == [(16, 22, 24)]
    # Depth: 1 from 0, 2 from 2, 3 from 4 to 20, 2 to 30, 1 to 45.
    area = 1 * 2 + 2 * 2 + 3 * 16 + 2 * 10 + 1 * 15
    assert rows(result, "streams", "max_queue_depth", "mean_queue_depth") == [(3, area / 45)]


def test_a_kernel_that_starts_inside_its_launch_call_did_not_wait(tmp_path):
    result = ask(ANALYSIS, Export().launch((0, 20), (10, 30)), tmp_path)

    assert rows(result, "streams", *WAIT) == [(0, 0, 0)]


def test_work_without_a_launch_call_is_counted_and_did_not_wait(tmp_path):
    result = ask(ANALYSIS, Export().kernel_without_launch((10, 30)), tmp_path)

    assert rows(result, "streams", "operations", *WAIT, "max_queue_depth") == [
        (1, None, None, None, 0)
    ]


def test_equal_ids_of_two_processes_are_two_streams(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20), process=1)
        .launch((0, 2), (20, 30), process=2)
        .launch((5, 6), (30, 40), process=2, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "streams", "process_id", "device_id", "queue_wait_max_ns")) == [
        (1000, 0, 8),
        (2000, 0, 18),
        (2000, 1, 24),
    ]
    assert rows(result, "devices", "device_id", "operations") == [(0, 2), (1, 1)]


def steps(number, cpu, gpu, sync=False):
    """`number` steps that take the CPU and the GPU so long, each with one kernel."""
    export = Export()
    now = free = 0
    for step in range(number):
        start = max(free, now + 10)
        export.range(f"step_{step}", now, now + cpu)
        export.launch((now + 1, now + 3), (start, start + gpu))
        free = start + gpu
        if sync:
            export.sync("cudaStreamSynchronize_v3020", now + 5, free + 1)
        now = free + 2 if sync else now + cpu
    return export


def test_a_cpu_that_runs_ahead_is_healthy(tmp_path):
    result = ask(ANALYSIS, steps(6, cpu=20, gpu=100), tmp_path)

    assert rows(result, "devices", "verdict") == [("gpu-bound",)]
    assert rows(result, "ranges", "name", "lead_ns", "steps_ahead") == [
        ("step_0", 110 - 20, 0),
        ("step_1", 210 - 40, 4),
        ("step_2", 310 - 60, 3),
        ("step_3", 410 - 80, 2),
        ("step_4", 510 - 100, 1),
        ("step_5", 610 - 120, 0),
    ]
    assert all(finding.time_at_stake_ns == 0 for finding in result.findings)


def test_a_cpu_that_launches_too_late(tmp_path):
    result = ask(ANALYSIS, steps(6, cpu=200, gpu=20), tmp_path)

    assert rows(result, "devices", "verdict") == [("launch-bound",)]


@pytest.mark.parametrize("pauses", [1, 2, 30])
@pytest.mark.parametrize("usual_us", [5, 60])
def test_few_long_pauses_do_not_make_a_program_launch_bound(tmp_path, pauses, usual_us):
    export, at, draw = Export(), 0, np.random.default_rng(1)
    for number in range(300):
        paused = number % (300 // pauses) == 150 // pauses
        at += 1_000_000 * usual_us if paused else 1_000 * usual_us
        export.launch((at, at + 4_000), (at + 6_000, at + 9_000), name=f"k{draw.integers(9)}")
        at += 9_000
    report = traceview.analyze(export.load(tmp_path))

    few = pauses < 4
    says = " ".join(str(each) for each in report.findings)
    assert ("few long" in says) is few
    assert not few or "is launch-bound" not in says
    assert (report.scoreboard.launch == "paused") is few


def test_a_cpu_that_waits_in_every_step(tmp_path):
    result = ask(ANALYSIS, steps(6, cpu=20, gpu=100, sync=True), tmp_path)

    assert rows(result, "devices", "verdict") == [("sync-drained",)]
    assert rows(result, "ranges", "steps_ahead") == [(0,)] * 6


def test_a_queue_that_holds_the_cpu_back_is_full_and_not_starved(tmp_path):
    export = Export()
    for number in range(1023):
        export.launch((number, number + 1), (2000 + 10 * number, 2010 + 10 * number))
    for number in range(1023, 1200):
        freed = 2000 + 10 * (number - 1023 + 1)
        export.launch((freed - 9, freed + 1), (2000 + 10 * number, 2010 + 10 * number))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "verdict", "max_queue_depth", "queue_full_ns") == [
        ("queue-full", 1024, 177 * 9)
    ]


def test_the_nodes_of_one_graph_do_not_fill_the_queue(tmp_path):
    nodes = [(20 + 10 * node, 30 + 10 * node) for node in range(1500)]

    result = ask(ANALYSIS, Export().graph_launch((0, 10), nodes), tmp_path)

    assert rows(result, "devices", "verdict") == [("gpu-bound",)]


def test_queued_work_that_waits_for_other_work_is_no_gpu_at_its_limit(tmp_path):
    export = Export()
    for number in range(20):
        export.launch((number, number + 1), (1000 * (number + 1), 1000 * (number + 1) + 100))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "verdict") == [("dependency-bound",)]
    [finding] = result.findings
    assert finding.action.endswith("Launching earlier cannot help.")


def test_ranges_of_a_thread_that_launches_nothing_hide_no_steps(tmp_path):
    export = Export().range("train", 0, 400)
    for step in range(4):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        export.range("ncclAllReduce", 100 * step, 100 * step + 50, thread=1)
        export.launch((100 * step + 1, 100 * step + 2), (100 * step + 10, 100 * step + 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "name") == [(f"step_{step}",) for step in range(4)]


@pytest.mark.parametrize("leads", [(60_000, 90_000), (90_000, 60_000)])
def test_each_gpu_has_a_lead_of_its_own(leads, tmp_path):
    export = Export()
    for process, gpu in zip((1, 2), leads, strict=True):
        for step in range(4):
            now = 100 * step
            export.range(f"step_{step}", now, now + 90, process=process)
            kernel = (now + gpu, now + gpu + 90)
            export.launch((now + 1, now + 2), kernel, process=process, device=process - 1)

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert finding.evidence.values["lead_ns"] == leads[0]
    assert finding.message.endswith("1 other GPU got the same verdict.")


@pytest.mark.parametrize(("operations", "findings"), [(3, 0), (4, 1)])
def test_of_three_operations_nothing_is_said_of_the_lead(operations, findings, tmp_path):
    export = Export()
    for number in range(operations):
        export.launch((number, number + 1), (100 + 100 * number, 200 + 100 * number))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "verdict") == [("gpu-bound",)]
    assert len(result.findings) == findings


def test_a_step_that_launched_nothing(tmp_path):
    export = Export().range("step", 0, 10).range("step", 20, 30).launch((21, 22), (40, 50))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "name", "gpu_start_ns", "lead_ns", "operations") == [
        ("step (1)", None, None, 0),
        ("step (2)", 40, 20, 1),
    ]


def test_steps_are_looked_for_below_a_single_outer_range(tmp_path):
    export = Export().range("train", 0, 100).range("it1", 0, 10).range("it2", 10, 20)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "name") == [("it1",), ("it2",)]


def test_waiting_in_every_step_is_not_the_verdict_where_launching_costs_more(tmp_path):
    export = Export()
    for step in range(6):
        now = 1000 * step
        export.range(f"step_{step}", now, now + 990)
        export.launch((now + 100, now + 110), (now + 110, now + 120))
        export.launch((now + 700, now + 710), (now + 710, now + 720))
        export.sync("cudaStreamSynchronize_v3020", now + 715, now + 725)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "verdict") == [("launch-bound",)]


def test_short_gaps_behind_a_deep_queue_are_not_running_dry(tmp_path):
    export = Export()
    for number in range(50):
        export.launch((number, number + 1), (100 + 40 * number, 139 + 40 * number))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", "verdict") == [("gpu-bound",)]


def test_a_cpu_that_does_other_work_is_not_told_to_launch_less(tmp_path):
    [away] = ask(ANALYSIS, steps(6, cpu=2_000_000, gpu=20), tmp_path).findings
    [busy] = ask(ANALYSIS, steps(6, cpu=20_000, gpu=20), tmp_path).findings

    assert away.message.startswith("GPU 0 is CPU-bound")
    assert busy.message.startswith("GPU 0 is launch-bound")
    assert away.action.startswith("Look in gpu-idle")
    assert busy.action.startswith("Launch less often")


@pytest.mark.parametrize(("kernel", "kernels_count"), [(30, False), (45, True)])
def test_a_gpu_that_mostly_copies_is_not_to_get_faster_kernels(tmp_path, kernel, kernels_count):
    """Copies of 50 ns, of which a kernel beside them covers 10."""
    export = Export()
    for number in range(20):
        call, start = 10 * number, 1000 + (40 + kernel) * number
        export.copy((call, call + 1), (start, start + 50), source="pinned", stream=8)
        export.launch((call + 2, call + 3), (start + 40, start + 40 + kernel))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith("GPU 0 is GPU-bound")
    assert finding.action.startswith(
        "Make the kernels faster" if kernels_count else "Make copies fewer"
    )
    assert ("of work it only copies." in finding.message) is not kernels_count


def test_a_synchronization_at_the_end_of_a_selected_step_drains_it(tmp_path):
    """The next step pays for it: in the selection the GPU runs dry before that wait alone."""
    export = Export()
    for step in range(6):
        now = 10_000 * step
        export.range(f"step_{step}", now, now + 9_990)
        export.launch((now + 1, now + 3), (now + 100, now + 9_900))
        export.sync("cudaStreamSynchronize_v3020", now + 5, now + 9_950)

    result = ask(ANALYSIS, export, tmp_path, include=("step_3",))

    assert rows(result, "devices", "verdict", "steady_idle_pct") == [("sync-drained", 2.0)]


@pytest.mark.parametrize(("idle_ns", "expected"), [(40, "gpu-bound"), (200, "sync-drained")])
def test_a_synchronization_that_costs_little_is_no_fault(tmp_path, idle_ns, expected):
    export = Export()
    for step in range(6):
        now = 10_000 * step
        export.range(f"step_{step}", now, now + 9_990)
        export.launch((now + 1, now + 3), (now + idle_ns, now + 10_000))
        export.sync("cudaStreamSynchronize_v3020", now + 5, now + 9_999)
    result = ask(ANALYSIS, export, tmp_path)
    assert rows(result, "devices", "verdict") == [(expected,)]


@pytest.mark.parametrize(("sizes", "gap_ms"), [(3, 40), (5, 15), (6, 200)])
@pytest.mark.parametrize("busy", [False, True])
def test_work_between_a_few_launches_is_a_pause_and_no_late_launch(tmp_path, sizes, gap_ms, busy):
    """A test of growing sizes makes its data on the CPU; or calls CUDA all the time."""
    export, at = Export(), 0
    for size in range(sizes):
        took = 60_000 * gap_ms * (size + 1)
        export.copy((at, at + took), (at + 5_000, at + took - 5_000), bytes=1_000 * took)
        at += took + 20_000
        export.launch((at, at + 5_000), (at + 8_000, at + 30_000 + 7_000 * size), name="sum")
        end = at + (size + 1) * gap_ms * 1_000_000
        for each in range(at + 100_000, end, 500_000) if busy else ():
            export.call("cudaGetLastError", each, each + 1_000)
        at = end
    export.launch((at, at + 5_000), (at + 8_000, at + 30_000), name="last")
    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.steps == 0
    assert report.scoreboard.launch == ("cpu-bound" if busy else "paused")
    assert ("mostly in few long pauses" in report.verdict.text) is not busy
