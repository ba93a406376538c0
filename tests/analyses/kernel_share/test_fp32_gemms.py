"""fp32 GEMMs off the tensor cores."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.base import units
from traceview.base.findings import Finding, Subject
from traceview.base.tables import Texts
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS
from traceview.traces.analyses.kernel_share.products import (
    Fp32Gemms,
    GemmLaunches,
    estimate,
    fp32_claim,
)
from traceview.traces.facts.work.from_ranges import declaration
from traceview.traces.facts.work.peaks import Peak
from traceview.traces.trace.load import load

SGEMM = "Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1)"
MS = 1_000_000
# Of the H200, in FLOP per second.
FP32, TF32 = 66.9e12, 494.7e12


def off_tensor_cores(found: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in found if "gemm_ns" in finding.evidence.values]


def multiplying(gpu: dict[str, object] | None = None, name: str = SGEMM, more: int = 0) -> Export:
    """A warm-up of 3 ms, 4 ms of products, and so much of another kernel."""
    export = Export()
    if gpu is not None:
        export.gpu(0, **gpu)
    export.range("warm_up", 0, 100).launch((10, 20), (50, 50 + 3 * MS), name=name)
    export.launch((200, 210), (5 * MS, 9 * MS), name=name)
    return export.launch((220, 230), (9 * MS, 9 * MS + more), name="add") if more else export


def test_fp32_gemms_off_the_tensor_cores_are_found(tmp_path):
    """Of the 4 ms after warm-up a seventh is left, were the CUDA cores at their peak until now."""
    [finding] = off_tensor_cores(ask(ANALYSIS, multiplying(more=MS), tmp_path).findings)

    assert finding.severity == "high"
    assert finding.time_at_stake_ns == pytest.approx(4 * MS * (1 - FP32 / TF32), abs=1)
    assert finding.message == (
        "fp32 GEMMs take 4.00 ms (80.0 % of kernel time after warm-up) and do not use the tensor "
        "cores; TF32 is up to 7.4× faster."
    )
    assert finding.action.startswith("Use TF32 where a 10-bit mantissa is accurate enough")
    assert finding.subject == Subject("kernel", SGEMM)
    assert finding.evidence.values["peak_flop_per_s"] == TF32
    assert finding.evidence.values["fp32_peak_flop_per_s"] == FP32


@pytest.mark.parametrize("long", [0, 1, 2])
def test_the_line_whose_gemms_take_most_of_the_time_is_told(tmp_path, long):
    """Each line multiplies twice per step; of 360 launches 60 are sampled."""
    export, now, free = Export(), 0, 0
    for step in range(60):
        for place in range(6):
            now += 20_000
            line = place // 2
            if step % 6 == place:
                export.python_sample(now - 10_000, ("model.py", 10 + line, f"layer_{line}"))
            begin = max(free, now + 6_000)
            free = begin + (MS if line == long else MS // 5)
            export.launch((now, now + 5_000), (begin, free), name=SGEMM, gridX=place + 1)

    [finding] = off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)

    assert f"launched at model.py:{10 + long} in layer_{long}." in finding.message
    assert finding.subject == Subject("kernel", SGEMM, "model.py", 10 + long)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_of_streams_side_by_side_the_time_is_saved_once(tmp_path, streams):
    """With four, it was said that the GPU waits for the CPU, though it always has work queued."""
    export = Export()
    for stream in range(7, 7 + streams):
        export.launch((10 * stream, 10 * stream + 5), (MS, 5 * MS), name=SGEMM, stream=stream)
    [finding] = off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)

    assert finding.evidence.values["gemm_ns"] == streams * 4 * MS
    assert finding.time_at_stake_ns == pytest.approx(4 * MS * (1 - FP32 / TF32), abs=2)
    assert "CPU" not in finding.message


def test_what_tf32_can_save_follows_from_known_flop(tmp_path):
    """A GEMM at a tenth of the CUDA cores' peak can save more than one at their peak."""
    flop = round(0.1 * FP32 * 4e-3)
    export = multiplying().range(declaration("mm", flop=flop, kind="fp32"), 195, 215)

    [finding] = off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)

    assert finding.time_at_stake_ns == pytest.approx(4 * MS * (1 - 0.1 * FP32 / TF32), abs=1)


@pytest.mark.parametrize(
    ("gpu", "kind", "share"),
    [
        # A slice of an H200, or a product that no data sheet here is of: no rates.
        ({"smCount": 60}, None, 0),
        (
            {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "smCount": 108},
            "TF32",
            1 - 19.5 / 156,
        ),
        # GeForce does TF32 as fast as fp32: bf16 alone is faster.
        (
            {"name": "NVIDIA GeForce RTX 3090", "computeMajor": 8, "smCount": 82},
            "bf16",
            1 - 35.6 / 71,
        ),
    ],
)
def test_what_is_saved_follows_from_the_rates_of_the_gpu(tmp_path, gpu, kind, share):
    [finding] = off_tensor_cores(ask(ANALYSIS, multiplying(gpu), tmp_path).findings)

    assert finding.time_at_stake_ns == pytest.approx(4 * MS * share, abs=1)
    assert finding.severity == ("high" if kind else "info")
    assert (f"; {kind} is up to" in finding.message) == bool(kind)
    assert finding.action.startswith("Use bf16 inputs" if kind == "bf16" else "Use TF32")


def test_gemms_that_take_no_time_are_no_finding():
    assert list(fp32_claim((Fp32Gemms(0, (SGEMM,), SGEMM, 0),), 0, 0, "torch")) == []


def test_the_estimate_takes_launches_and_peak_rates_alone():
    """Two launches of one kernel at half the fp32 peak, one of another whose FLOP are unknown."""
    rates = {"capability": 8.0, "fp32": 10e12, "tf32": 80e12}
    peaks = {name: Peak(value, "given") for name, value in rates.items()}
    names = Texts.of(["a", "b", "a"])
    launches = GemmLaunches(names, names, np.array([100, 300, 100]), np.array([5e5, np.nan, 5e5]))

    found = estimate(0, launches, peaks, {})

    assert found is not None
    assert found.names == ("b", "a")
    assert (found.time_ns, found.kind) == (500, "tf32")
    # 1e6 FLOP are known, and 300 ns at the peak are 3e6 at most: 50 ns at 80 TFLOP/s.
    assert found.saved_ns == 450
    assert estimate(0, launches, {**peaks, "capability": Peak(7.5, "given")}, {}) is None
    assert estimate(0, launches, {**peaks, "tf32": Peak(9e12, "given")}, {}) is None
    # The clock of the GPU is not in traces of torch.profiler: a ratio is enough.
    relative = estimate(0, launches, {"capability": peaks["capability"]}, {"tf32": 1, "bf16": 2})
    assert relative is not None
    assert (relative.kind, relative.speedup, relative.saved_ns) == ("bf16", 2, 250)
    assert relative.flop_per_s is None


@pytest.mark.parametrize(
    ("gpu", "name", "more"),
    [
        ({"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "smCount": 80}, SGEMM, 0),
        (None, "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", 0),
        (None, "my_gemm", 0),
        # Under a tenth of the time.
        (None, SGEMM, 40 * MS),
    ],
)
def test_where_tensor_cores_would_not_help_there_is_no_finding(tmp_path, gpu, name, more):
    result = ask(ANALYSIS, multiplying(gpu, name, more), tmp_path)

    assert not off_tensor_cores(result.findings)


def test_fp32_gemms_of_warm_up_alone_are_no_finding(tmp_path):
    export = Export().range("warm_up", 0, 100).launch((10, 20), (50, 3 * MS), name=SGEMM)
    export.launch((200, 210), (5 * MS, 9 * MS), name="add")

    assert not off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *((name, "96.4 %") for name in ("mlp_sync", "mlp_nosync", "mlp_print_loss")),
        ("cupy", "94.1 %"),
        ("queue_full", "88.8 %"),
        # Of the little time that is no first use.
        ("launches", "54.9 %"),
        # fp32 as well, but tiny: waves, element-wise; or bf16 on tensor cores.
        *((name, None) for name in ("waves", "cuda_graphs", "graph_nodes", "shapes")),
    ],
)
def test_recordings_that_multiply_in_fp32(unpack, name, share):
    found = off_tensor_cores(ANALYSIS.run(load(unpack(name))).findings)

    shares = [units.percent(float(finding.evidence.values["gemm_pct"])) for finding in found]
    assert shares == [share] * len(found)
    assert bool(found) == bool(share)
