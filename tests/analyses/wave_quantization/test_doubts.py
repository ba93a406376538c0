"""Last waves that need not cost time: without evidence no time is promised."""

import pytest

from tests.analyses.single_answer import ask
from tests.analyses.wave_quantization.launches import MS, kernel
from tests.build import Export
from traceview import analyze
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(T1)"
PER_SM = {1: 1024, 2: 1024, 4: 512, 8: 256}
"""Threads of a block, of which an SM holds so many."""


def shaped(per_sm: int) -> dict[str, int]:
    return {"blockX": PER_SM[per_sm], "registersPerThread": 64 if per_sm == 1 else 32}


@pytest.mark.parametrize("name", ["step(float*)", GEMM])
@pytest.mark.parametrize("per_sm", PER_SM)
@pytest.mark.parametrize("waves", [2, 6])
@pytest.mark.parametrize("wave_us", [4, 50])
def test_a_saving_is_promised_only_of_long_waves_of_few_blocks(
    name, per_sm, waves, wave_us, tmp_path
):
    blocks, took = 132 * per_sm * (waves - 1) + 40, 1_000 * wave_us * waves
    export = Export()
    for call in range(300):
        kernel(export, took, blocks, at=call * took, name=name, **shaped(per_sm))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    promised = wave_us > 10 and per_sm < 4
    assert (finding.severity == "info") is not promised
    assert (finding.time_at_stake_ns > 0) is promised
    assert (" can be saved" in finding.message) is (promised and "Up to" in finding.message)
    assert ("need not cost time" in finding.message) is not promised
    if not promised:
        assert "easure" in finding.action
        assert not any(row.won for row in analyze(export.load(tmp_path)).findings[:1])


@pytest.mark.parametrize("per_sm", PER_SM)
@pytest.mark.parametrize("steps", [False, True])
def test_a_measured_step_is_evidence(per_sm, steps, tmp_path):
    full = 132 * per_sm
    export, at = Export(), 0
    for blocks, waves in ((full, 1), (full + 1, 2 if steps else 1), (2 * full, 2)):
        took = MS * waves
        kernel(export, took, blocks, at=at, name="step", **shaped(per_sm))
        at += took

    found = ask(ANALYSIS, export, tmp_path).findings

    assert bool(found) is steps
    assert all(each.severity != "info" and each.time_at_stake_ns for each in found)


@pytest.mark.parametrize("other", ["transposeTiled", "transpose_v2", "copy", "solve"])
@pytest.mark.parametrize("times", [1, 1.5, 6])
@pytest.mark.parametrize("blocks", [160, 264 + 5])
def test_waves_do_not_limit_a_kernel_whose_variant_is_far_faster(other, times, blocks, tmp_path):
    export, at = Export(), 0
    for name, took in (("transposeNaive", MS), (other, round(MS / times))):
        for _ in range(10):
            kernel(export, took, blocks, at=at, name=name, **shaped(1))
            at += took

    found = {
        each.evidence.values["kernel"]: each for each in ask(ANALYSIS, export, tmp_path).findings
    }

    doubted = times > 2 and other.startswith("transpose")
    assert (found["transposeNaive"].severity == "info") is doubted
    assert ("not what limits it" in found["transposeNaive"].message) is doubted
    assert found[other].severity != "info"
