"""The bar of the run's time: its parts add up, and agree with the tables beside it."""

from pathlib import Path

import pytest

import traceview
from tests.build import Export
from tests.places import REPOSITORY
from traceview.render.report.html import time_bar

DATA = Path(__file__).parents[1] / "data"
LATE_DATA = REPOSITORY / "examples/training.sqlite.xz"
RECORDINGS = (
    "training", "two_gpus", "streams", "sync_sites", "graph_whole", "cuda_graphs",
    "foreign/nanogpt", "foreign/dcgan", "foreign/jacobi_2",
)  # fmt: skip


@pytest.fixture(scope="module", params=RECORDINGS)
def report(request):
    return traceview.analyze(traceview.load(DATA / f"{request.param}.sqlite.xz"), "gpu-idle")


def test_parts_add_up_to_the_steady_time(report):
    time, board = report.run_time, report.scoreboard
    busy_ns = sum(part.time_ns for part in time.parts if part.kind == "busy")
    assert sum(part.time_ns for part in time.parts) == time.steady_ns == board.steady_ns
    # A recording of first calls alone states no share.
    busy_pct = board.gpu_busy_pct
    assert busy_pct is None or 100 * busy_ns / time.steady_ns == pytest.approx(busy_pct)
    assert 0 < time.steady_ns <= time.run_ns
    assert time.device_id == board.device_id


def test_communication_and_copies_count_where_nothing_else_runs(report):
    times = {part.name: part.time_ns for part in report.run_time.parts}
    assert times.get("communication", 0) == (report.scoreboard.communication_ns or 0)
    waits = times.get("copy-wait", 0)
    copied = times.get("copy", 0) + waits
    assert copied == (report.scoreboard.copies_ns or 0)


def test_the_bar_and_the_opening_have_one_name_for_late_data():
    """What launches late for want of data is no `launch-late` time on the page."""
    report = traceview.analyze(traceview.load(LATE_DATA), "gpu-idle")
    times = {part.name: part.time_ns for part in report.run_time.parts}
    share = 100 * times["data-loading"] / report.run_time.steady_ns
    assert f"{share:.1f} % waiting for data" in report.verdict.text
    assert times.get("launch-late", 0) < 0.1 * times["data-loading"]
    assert "launch-late" not in [each.name for each in time_bar(report.run_time, None).idle]


def test_of_work_that_runs_at_once_the_first_to_start_counts(tmp_path):
    export = Export().launch((0, 2), (10, 50), name="ampere_sgemm_128x64_tn")
    export.copy((20, 25), (60, 70), source="pinned")
    export.launch((90, 92), (100, 120), name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    export.launch((93, 95), (110, 150), stream=8, name="vectorized_elementwise_kernel")

    parts = traceview.analyze(export.load(tmp_path), "gpu-idle").run_time.parts
    assert [(part.kind, part.name, part.time_ns) for part in parts if part.kind == "busy"] == [
        ("busy", "gemm", 40),
        ("busy", "elementwise", 40),
        ("busy", "communication", 10),
        ("busy", "copy", 10),
    ]


def test_no_time_without_work_on_a_gpu():
    trace = traceview.load(DATA / "ranges_2023_4.sqlite.xz")
    assert traceview.analyze(trace, "gpu-idle").run_time is None
