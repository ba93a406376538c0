"""Blocks of part of a warp."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.base.findings import Subject
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS

MS = 1_000_000


def findings(tmp_path, threads, *, blocks=1 << 20, registers=32, name="insert(int *)"):
    export = Export()
    for at in (0, 2 * MS):
        sides = {"gridX": blocks, "blockX": threads, "registersPerThread": registers}
        export.kernel_without_launch((at, at + MS), name=name, **sides)
    return ask(ANALYSIS, export, tmp_path).findings


def test_blocks_of_four_threads_use_an_eighth_of_a_warp(tmp_path):
    [finding] = findings(tmp_path, 4)
    assert finding.message == (
        "insert launches blocks of 4 threads: each leaves 28 of the 32 lanes of its warp idle, "
        "and an SM holds no more than 32 blocks. Up to 1.88 ms of 2.00 ms can be saved."
    )
    # 32 blocks of 4 threads, where 2,048 threads fit.
    assert finding.time_at_stake_ns == 1_875_000
    assert finding.severity == "high"
    assert finding.subject == Subject("kernel", "insert(int *)")
    assert "a multiple of 32 threads" in finding.action


def test_blocks_that_all_run_at_once_wait_for_no_room(tmp_path):
    """On an H200 such a kernel gained 0.28 of 2.60 ms by blocks of 128 (docs/accuracy.md)."""
    [finding] = findings(tmp_path, 8, blocks=2048)
    assert finding.message == (
        "insert launches blocks of 8 threads: each leaves 24 of the 32 lanes of its warp idle. "
        "Up to 1.50 ms of 2.00 ms can be saved."
    )
    assert finding.severity == "medium"


def test_registers_limit_larger_blocks_as_well(tmp_path):
    """With 128 registers per thread an SM holds 512 threads, in whatever blocks."""
    [finding] = findings(tmp_path, 4, registers=128)
    assert finding.time_at_stake_ns == 1_750_000


def test_the_last_warp_of_a_block_counts_as_well(tmp_path):
    [finding] = findings(tmp_path, 33)
    assert "blocks of 33 threads: each leaves 31 of the 64 lanes of its warps" in finding.message
    assert finding.time_at_stake_ns == round(2 * MS * 31 / 64)


@pytest.mark.parametrize(
    ("threads", "columns"),
    [
        (32, {}),
        # 28 of 128 lanes: less than a quarter.
        (100, {}),
        # The program does not choose the blocks of a library.
        (4, {"name": "void cub::DeviceScanKernel<int>(int *)"}),
    ],
)
def test_other_blocks_lose_little_or_cannot_be_changed(tmp_path, threads, columns):
    assert not findings(tmp_path, threads, **columns)


def test_idle_sms_come_first(tmp_path):
    [finding] = findings(tmp_path, 4, blocks=33)
    assert "launches 33 blocks of 4 threads for 132 SMs" in finding.message
