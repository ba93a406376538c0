"""Kernels of libraries in words, by a table of names that recordings hold."""

import time

import pytest

from tests.places import DATA
from traceview.base.vocabulary.libraries import architecture, readable


def named() -> list[tuple[str, str]]:
    lines = (DATA / "kernel_names.tsv").read_text("utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if not line.startswith("#"))
    return [(label, name) for label, name in pairs]


@pytest.mark.parametrize(("label", "name"), named())
def test_a_recorded_name_in_words(label, name):
    assert readable(name) == label


def test_what_a_name_leaves_out_stays_out():
    """An s1688gemm without types multiplies tf32 or fp16."""
    assert readable(
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nt_align4>()"
    ) == ("CUTLASS GEMM 128×128×32 NT align4")
    assert readable("void at::native::vectorized_elementwise_kernel<(int)4>(int)") == ""


@pytest.mark.parametrize(
    ("name", "built_for"),
    [
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", 70),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 80),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nt_align4>()", 80),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x64x32_warpgroupsize1x1x1", 90),
        ("nvjet_tst_192x192_64x3_1x2_h_bz_coopB_NTN", 90),
        ("nvjet_sm120_tst_mma_64x64x128_3_TNNN", 120),
        ("void at::native::vectorized_elementwise_kernel<(int)4>(int)", None),
    ],
)
def test_what_a_kernel_was_built_for(name, built_for):
    assert architecture(name) == built_for


@pytest.mark.parametrize(
    "name",
    [
        "<" * 100_000,
        "void at::native::reduce_kernel<" + "ReduceOp<" * 5_000,
        "sm80_xmma_gemm_" + "f32f32_" * 5_000,
        "cudnn_generated_" + "sdpa_flash_" * 5_000,
        "nvjet_" + "a_" * 5_000,
        "triton_poi_fused_" + "_" * 100_000,
        "[lambda(" * 5_000 + "void at::native::elementwise_kernel<",
        "multi_tensor_apply_kernel<" + "aB" * 5_000,
    ],
)
def test_hostile_names_take_no_time(name):
    began = time.thread_time()
    assert len(readable(name)) <= 120
    assert time.thread_time() - began < 5
