"""Kernels of one grid that a program compares, one after another."""

import pytest

from tests.build import Export
from traceview import analyze

US = 1_000
SETS = {
    "transposition": ("transposeNaive", "transposeCoalesced", "transposeNoBankConflicts"),
    "product": ("matmul_naive", "matmul_tiled", "matmul_v3"),
    "of other things": ("advect", "project", "diffuse"),
}


@pytest.mark.parametrize("names", SETS)
@pytest.mark.parametrize("calls", [2, 40])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("grid", [64, 2048])
def test_the_fastest_of_compared_kernels_is_named(names, calls, apart, order, grid, tmp_path):
    """Not where they take turns, as those of a loop do, nor of kernels that do other things."""
    took = dict(zip(SETS[names], (60 * US, 25 * US, 8 * US), strict=True))
    ordered = [*took][::order]
    turns = [[each] * calls for each in ordered] if apart else [ordered] * calls
    export, at = Export(), 0
    for turn in turns:
        for name in turn:
            start = at + 2 * US
            columns = {"gridX": grid, "blockX": 256, "registersPerThread": 32}
            export.launch((at, at + US), (start, start + took[name]), name=name, **columns)
            at = start + took[name] + 5 * US
        # The CPU checks the result.
        at += 2_000 * US

    findings = [each.finding for each in analyze(export.load(tmp_path)).findings]

    compared = apart and calls > 5 and names != "of other things"
    own = [each for each in findings if "a comparison" in each.message]
    assert len(own) == compared
    for each in own:
        assert f"{ordered[0 if order < 0 else -1]}, of the same grid, 8.00 µs" in each.message
        assert "3 kernels of like names" in each.message
        assert each.severity != "info"
        assert each.time_at_stake_ns == pytest.approx(calls * 52 * US, rel=0.01)
    idle = [each for each in findings if "launch" in each.message and each.severity == "high"]
    assert not (compared and idle)
    between = [each for each in findings if "that the program compares" in each.message]
    assert all(each.severity == "info" for each in between)
    assert len(between) == compared
