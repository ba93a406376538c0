"""Real runs of one benchmark: five of a GELU, five more, and five that do 3 % more work.

Recorded on one H200 (driver 580, CUDA 13.0, torch 2.11, Triton 3.6), each run a process of its own
and the three in turns: `traceview bench kernels/gelu.py --size 67108864 --version triton --version
torch`. The slower Triton kernel runs 3 % of its blocks twice; torch's version is the same in all.
"""

import pytest

import traceview
from tests.places import DATA


def differences(before, after):
    sides = [sorted((DATA / "bench").glob(f"{side}.*.json")) for side in (before, after)]
    assert [len(side) for side in sides] == [5, 5]
    return {row.version: row for row in traceview.compare_benchmarks(*sides).rows}


@pytest.mark.parametrize("version", ["triton", "torch"])
def test_equal_versions_are_within_the_noise(version):
    row = differences("old", "new")[version]
    assert (row.change, row.basis, row.is_certain) == ("unclear", "runs", False)
    assert row.low_ns < 0 < row.high_ns


@pytest.mark.parametrize("before", ["old", "new"])
def test_three_percent_more_work_is_found(before):
    rows = differences(before, "slow")
    slower = rows["triton"]
    assert (slower.change, slower.basis, slower.is_certain) == ("slower", "runs", True)
    assert slower.delta_pct == pytest.approx(3, abs=0.3)
    assert not rows["torch"].is_certain
