"""The scoreboard: its figures agree with the verdict and with the analyses beside it."""

from dataclasses import fields

import pytest

import traceview
from tests.build import Export
from tests.places import DATA
from traceview.base import units
from traceview.render.report.document import tiles
from traceview.traces.analyses.verdict import SCOREBOARD, Scoreboard, scoreboard

US = 1_000


def test_each_field_has_its_meaning():
    assert [column.name for column in SCOREBOARD] == [field.name for field in fields(Scoreboard)]
    assert all(column.meaning for column in SCOREBOARD)


def test_exposed_time_of_a_small_recording(tmp_path):
    export = Export().launch((0, 2), (10, 50), name="ampere_sgemm_128x64_tn")
    export.copy((20, 25), (60, 70), source="pinned")
    export.launch((90, 92), (100, 120), name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    export.launch((93, 95), (110, 150), stream=8, name="vectorized_elementwise_kernel")

    board = scoreboard(export.load(tmp_path))

    assert (board.steady_ns, board.communication_ns, board.copies_ns) == (140, 10, 10)
    assert board.gpu_busy_pct == pytest.approx(100 * 100 / 140)
    assert board.communication_pct == board.copies_pct == pytest.approx(100 * 10 / 140)
    assert (board.steps, board.step_median_ns, board.memory_peak_bytes) == (0, None, None)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kernel_us", [1, 20, 400])
@pytest.mark.parametrize("copy_us", [5, 300])
def test_exposed_copies_are_a_part_of_the_busy_time(tmp_path, copy_us, kernel_us, waits):
    """A frame is uploaded and processed; idle time until a copy ends is no copy."""
    export, at = Export(), 0
    for _ in range(30):
        source = "pageable" if waits else "pinned"
        copied = at + 200 * US + copy_us * US
        times = (at, copied if waits else at + 5 * US), (at + 200 * US, copied)
        export.copy(*times, bytes=10**6, source=source)
        times = (copied + 10, copied + 20), (copied + 5 * US, copied + 5 * US + kernel_us * US)
        export.launch(*times)
        at += 900 * US
    board = scoreboard(export.load(tmp_path))
    assert 100 * board.copies_exposed_ns / board.steady_ns <= board.gpu_busy_pct
    busy_pct = 100 * 30 * (copy_us + kernel_us) * US / board.steady_ns
    assert board.gpu_busy_pct == pytest.approx(busy_pct, rel=0.05)
    assert board.copies_exposed_ns == pytest.approx(30 * copy_us * US, rel=0.05)
    shown = next(tile for tile in tiles(board) if tile.field == "copies_pct")
    assert shown.value == units.percent(100 * board.copies_exposed_ns / board.steady_ns)
    assert shown.detail == f"{units.duration(board.copies_exposed_ns)} exposed"


def test_what_did_not_happen_is_absent(tmp_path):
    board = scoreboard(Export().launch((0, 2), (10, 50)).load(tmp_path))
    assert (board.communication_ns, board.copies_ns) == (None, None)
    assert [tile.field for tile in tiles(board)] == ["gpu_busy_pct", "step_median_ns"]


def test_without_gpu_work_there_is_no_device(tmp_path):
    board = scoreboard(Export().range("step", 0, 10).load(tmp_path))
    assert (board.device_id, board.devices, board.gpu_busy_pct, board.launch) == (
        None,
        0,
        None,
        None,
    )
    assert tiles(board) == ()


@pytest.mark.parametrize("name", ["training", "two_gpus", "mlp_sync", "graph_whole"])
def test_recordings_agree_with_their_answers(unpack, name):
    report = traceview.analyze(traceview.load(unpack(name)), ["run-ahead", "memory"])
    board = report.scoreboard
    assert board is not None
    assert report.verdict is not None
    assert (board.steps, board.step_median_ns) == (
        report.verdict.steps,
        report.verdict.step_median_ns,
    )
    assert board.gpu_busy_pct == report.verdict.gpu_busy_pct
    devices = {row["device_id"]: row for row in report["run-ahead"].tables["devices"].rows()}
    late_for_data = report.verdict.limit == "data-loading"
    expected = "data-loading" if late_for_data else devices[board.device_id]["verdict"]
    if any("is CPU-bound" in each.finding.message for each in report.findings):
        assert expected == "launch-bound"
        expected = "cpu-bound"
    # Next to no GPU work shows no habit.
    few = report.verdict.text.startswith("Next to no GPU work")
    assert board.launch == (None if few else expected)
    if isinstance(report["memory"], traceview.Result):
        peaks = {row["device_id"]: row for row in report["memory"].tables["peaks"].rows()}
        assert board.memory_peak_bytes == peaks[board.device_id]["peak_bytes"]
    else:
        assert board.memory_peak_bytes is None


def test_a_program_that_waits_for_data_is_not_launch_bound():
    report = traceview.analyze(
        traceview.load(DATA / "foreign" / "mnist.sqlite.xz"), only=["run-ahead"]
    )
    (device,) = report["run-ahead"].tables["devices"].rows()
    assert device["verdict"] == "launch-bound"
    assert report.verdict.limit == report.scoreboard.launch == "data-loading"
    (launches,) = (tile for tile in tiles(report.scoreboard) if tile.field == "launch")
    assert launches.value == "data-bound"


@pytest.mark.parametrize("name", ["wait_for(long)", "delay_kernel(long)", "gemm"])
@pytest.mark.parametrize("copy_us", [900, 8_000])
def test_copies_under_a_kernel_from_before_the_loop_are_hidden(tmp_path, name, copy_us):
    """Streams upload and compute beside one kernel that keeps the GPU busy all the time."""
    export, at = Export(), 100 * US
    each = (copy_us + 200) * US
    export.launch((0, 5 * US), (10 * US, 40 * each), name=name, gridX=1, blockX=1)
    for _ in range(30):
        copied = at + copy_us * US
        export.copy((at, copied), (at + 10 * US, copied), bytes=10**6, stream=9)
        times = (copied + US, copied + 4 * US), (copied + 5 * US, copied + 150 * US)
        export.launch(*times, name="work", stream=9)
        at += each
    report = traceview.analyze(export.load(tmp_path))

    board = scoreboard(report.recording)
    assert (board.gpu_busy_pct, board.copies_exposed_ns) == (100, 0)
    assert "copies" not in report.verdict.text
    assert "autotuner" not in " ".join(each.finding.message for each in report.findings)
    assert not any(
        each.finding.time_at_stake_ns for each in report.findings if each.analysis != "kernel-share"
    )
