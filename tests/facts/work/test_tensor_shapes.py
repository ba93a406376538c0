"""Work from the texts that torch's emit_nvtx(record_shapes=True) writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.vocabulary.libraries import number_type
from traceview.traces.facts.work.from_ranges import Gemm, parse_gemm


@pytest.mark.parametrize(
    ("said", "sides"),
    [
        ("aten::mm, seq = 1, op_id = 2, sizes = [[4, 8], [8, 16]]", (1, 4, 8, 16)),
        ("aten::mm, op_id = 2, sizes = [[4, 8], [8, 16]], input_op_ids = [(1,0)]", (1, 4, 8, 16)),
        ("aten::mm, sizes = [[4, 8], [8, 16]]", (1, 4, 8, 16)),
        ("aten::addmm, seq = 1, sizes = [[16], [4, 8], [8, 16], [], []]", (1, 4, 8, 16)),
        ("aten::bmm, sizes = [[3, 4, 8], [3, 8, 16]]", (3, 4, 8, 16)),
        ("aten::baddbmm, sizes = [[3, 4, 16], [3, 4, 8], [3, 8, 16], [], []]", (3, 4, 8, 16)),
        ("aten::linear, sizes = [[2, 3, 8], [16, 8], [16]]", (1, 6, 8, 16)),
        ("aten::mm, sizes = [[0, 8], [8, 16]]", (1, 0, 8, 16)),
    ],
)
def test_gemms(said, sides):
    batch, m, k, n = sides
    moved = batch * (m * k + k * n + m * n)
    found = parse_gemm(said)
    assert found == Gemm(said.partition(",")[0], *sides)
    assert (found.flop, found.elements) == (2 * batch * m * n * k, moved)


@pytest.mark.parametrize(
    "said",
    [
        "aten::mm",
        "aten::mm, seq = 12",
        "aten::relu, sizes = [[4, 8]]",
        "aten::mm, sizes = [[4, 8], [9, 16]]",
        "aten::mm, sizes = [[4, 8]]",
        "aten::mm, sizes = []",
        "aten::mm, sizes = [[4, 8], [8, 16]",
        "aten::mm, sizes = [[4, -8], [-8, 16]]",
        "aten::mm, sizes = [[4, 9999999999999999], [9999999999999999, 16]]",
        "aten::mm, sizes = [[4, " + "9" * 3000 + "], [8, 16]]",
        "aten::mm, sizes = [[--, 8], [8, 16]]",
        "aten::bmm, sizes = [[3, 4, 8], [5, 8, 16]]",
        "aten::matmul, sizes = [[8], [8]]",
        # Stride and padding are not told, nor whether it is causal.
        "aten::convolution, sizes = [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []]",
        "aten::_scaled_dot_product_flash_attention, sizes = [[1, 2, 8, 4], [1, 2, 8, 4], []]",
        "aten::mm, sizes = " + "[" * 3000,
        # More FLOP than a number of floating point can hold.
        f"aten::linear, sizes = [[{', '.join(['1000000000'] * 40)}], [1, 1000000000]]",
    ],
)
def test_what_is_none_or_not_told(said):
    assert parse_gemm(said) is None


@given(st.text(alphabet="aten:m,sizes =[]0123456789-", max_size=80))
def test_no_text_is_too_strange(said):
    parse_gemm(said)
    parse_gemm(f"aten::mm, sizes = {said}")


@pytest.mark.parametrize(
    ("kernel", "type_"),
    [
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", (2, "bf16")),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", (2, "fp16")),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3", (4, "fp32")),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", (4, "tf32")),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32", (2, "bf16")),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", (2, "bf16")),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn", (2, "fp16")),
        ("volta_h884gemm_128x64_ldg8_nn", (2, "fp16")),
        ("ampere_sgemm_128x64_tn", (4, "fp32")),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(T1::Params)",
            (4, "fp32"),
        ),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn_align8", (2, "bf16")),
        # TF32 or fp16: the name leaves it open.
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", None),
        ("nvjet_qqtst_128x128", None),
        ("my_gemm", None),
    ],
)
def test_types_by_name(kernel, type_):
    assert number_type(kernel) == type_
