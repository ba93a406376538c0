"""Kernels whose blocks wait for pages of unified memory."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS

MS = 1_000_000


def findings(tmp_path, blocks, moving, cause="page fault"):
    """A kernel of 10 ms, during which pages move for `moving` ms in up to 16 pieces."""
    export, pieces = Export().launch((0, 5), (10, 10 + 10 * MS), gridX=blocks, blockX=1024), 16
    for number in range(pieces if moving else 0):
        begin = 10 + number * 10 * MS // pieces
        export.migration((begin, begin + round(moving * MS / pieces)), cause=cause)
    return ask(ANALYSIS, export, tmp_path).findings


@pytest.mark.parametrize("blocks", [1, 2, 12])
@pytest.mark.parametrize("moving", [0, 0.04, 3, 8])
def test_idle_sms_have_their_part_of_the_time_without_migrations(tmp_path, blocks, moving):
    [finding] = findings(tmp_path, blocks, moving)
    # No grid undercuts 100 µs.
    alone = 9.9 * MS * (1 - moving / 10)
    assert finding.time_at_stake_ns == pytest.approx(alone * (1 - blocks / 132), rel=1e-3)


@pytest.mark.parametrize("blocks", [265, 600, 1_100])
@pytest.mark.parametrize(("moving", "said"), [(0, 1), (0.04, 1), (1.1, 0), (8, 0)])
def test_the_last_wave_tells_nothing_where_blocks_wait_for_pages(tmp_path, blocks, moving, said):
    assert len(findings(tmp_path, blocks, moving)) == said


def test_prefetched_pages_hold_no_block_up(tmp_path):
    [finding] = findings(tmp_path, 1, 8, cause="user prefetch")
    assert finding.time_at_stake_ns == pytest.approx(9.9 * MS * 131 / 132, rel=1e-3)


@pytest.mark.parametrize("late_us", [2, 400, 900])
@pytest.mark.parametrize("blocks", [1, 16])
def test_a_kernel_waits_until_its_first_page_is_there(tmp_path, late_us, blocks):
    """A few additions: nothing that more blocks would make faster runs before."""
    first, end = 10 + late_us * 1_000, 10 + late_us * 1_000 + 500_000
    export = Export().launch((0, 5), (10, end), gridX=blocks, blockX=256)
    export.migration((first, first + 3_000)).migration((first + 3_000, first + 7_000))
    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # No grid undercuts 100 µs.
    of_rest = (end - 10 - 100_000) * 493_000 / (end - 10) * (1 - blocks / 132)
    assert finding.time_at_stake_ns == pytest.approx(of_rest, rel=0.01)
