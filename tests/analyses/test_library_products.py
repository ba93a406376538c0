"""A GPU that libraries' tensor-core products fill is not to get faster kernels."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.trace.kineto.traces import H100, Event, call, kernel, write
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load

A100 = {**H100, "name": "NVIDIA A100", "computeMajor": 8, "numSms": 108}
OLD = [
    "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn",
    "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x3_tn",
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8>"
    "(cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8::Params)",
    "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x256x32_stage3_warpsize2x4x1_tensor16x8x16",
]
NEW = [
    "nvjet_tst_192x192_64x3_1x2_h_bz_coopB_NTN",
    "nvjet_sm90_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_bf16_execute_"
    "segment_k_off_kernel__5x_cublas",
]
OTHERS = [
    "ampere_sgemm_128x128_nn",
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x64_64x3_nn_align1>(P)",
    "cutlass_80_simt_sgemm_128x256_8x4_nn_align1",
    "my_kernel",
]


def action(folder: Path, name: str, gpu: dict[str, Any], blocks: int, others: int = 0) -> str:
    """What to do with launches of 5 ms, made in 100 µs."""
    events: list[Event] = []
    for number in range(8):
        events.append(call("cudaLaunchKernel", 10 * number, 5, number + 1))
        other = number < others
        events.append(
            kernel(
                "other" if other else name,
                20 + 5_001 * number,
                5_000,
                number + 1,
                grid=[blocks, 1, 1],
            )
        )
    header = {"deviceProperties": [gpu]}
    result = analyze(load(write(folder / "t.json", events, header=header))).outcomes["run-ahead"]
    [finding] = result.findings
    assert "is GPU-bound" in finding.message
    return finding.action


@pytest.mark.parametrize(
    ("name", "gpu"), [*itertools.product([*OLD, NEW[0]], [A100]), *itertools.product(NEW, [H100])]
)
def test_large_products_are_left(name, gpu, tmp_path):
    text = action(tmp_path, name, gpu, 5_000)
    assert text.startswith(
        "Leave the kernels as they are: 100.0 % of their time is in 16-bit GEMMs"
    )
    assert "record_shapes=True" in text


@pytest.mark.parametrize(
    ("name", "gpu", "blocks", "others"),
    [
        *((name, A100, 5_000, 0) for name in OTHERS),
        *((name, H100, 5_000, 0) for name in OLD),
        *((name, A100, 60, 0) for name in OLD),
        *((name, A100, 5_000, 2) for name in OLD),
    ],
)
def test_others_are_not(name, gpu, blocks, others, tmp_path):
    assert action(tmp_path, name, gpu, blocks, others).startswith("Make the kernels faster")
