"""Tiles from the names of kernels, and that they are those of the grids that really ran."""

import sqlite3
from contextlib import closing

import pytest

from traceview.base.vocabulary.libraries import Tile, is_fp32_gemm_on_cuda_cores, tile

XMMA = "sm80_xmma_gemm_f32f32_{}f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNT",
            Tile(192, 192, 64, 3, "bf16"),
        ),
        ("nvjet_sm90_hsh_64x8_64x16_1x4_h_bz_NNT", Tile(64, 8, 64, 16, "f16")),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT", Tile(128, 256, 64, 4, "f16")),
        ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT", Tile(128, 128, 128, 6, "fp8")),
        ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNT", Tile(64, 32, 64, 16, "bf16")),
        (
            "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN",
            Tile(64, 64, 128, 3, "bf16"),
        ),
        (XMMA.format("f32"), Tile(256, 128, 8, 3, "f32")),
        (XMMA.format("tf32"), Tile(256, 128, 8, 3, "tf32")),
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_",
            Tile(32, 32, 8, 3, "f32"),
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x128_64x3_nn_align8>"
            "(T1::Params)",
            Tile(128, 128, 64, 3, "f16"),
        ),
        (
            "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align2",
            Tile(32, 32, 128, 2, "bf16"),
        ),
        (
            "cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8",
            Tile(64, 64, 32, 6, "f16"),
        ),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", Tile(256, 128, 8, 4, "f32")),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", Tile(128, 128, 16, 5)),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", Tile(64, 64, 16, 4)),
        (
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            Tile(128, 128, 32, 5, "f16"),
        ),
        ("ampere_h16816gemm_256x64_ldg8_tn", Tile(256, 64, inputs="f16")),
        ("volta_sgemm_128x64_nn", Tile(128, 64, inputs="f32")),
        ("void gemv2T_kernel_val<int, float, 128, 16, 4, 4>(T1)", None),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<128x64>>", None),
        ("gelu_128x128", None),
        ("", None),
    ],
)
def test_tiles_in_names(name, expected):
    assert tile(name) == expected


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        (XMMA.format("f32") + "_alignc4_execute_kernel__5x_cublas", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)", True),
        ("cutlass_simt_sgemm_128x128_8x2_nn_align1", True),
        ("cutlass_80_simt_sgemm_relu_128x64_8x5_tn_align1", True),
        ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_nnn_align1_bias", True),
        ("ampere_sgemm_128x64_tn", True),
        ("volta_sgemm_32x32_sliced1x4_nn", True),
        ("void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int)", True),
        # Tensor cores: TF32 under several names, and other types.
        (XMMA.format("tf32"), False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_tensor16x8x8_execute", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", False),
        ("cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4", False),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", False),
        ("nvjet_sm90_sss_128x64_64x8_1x2_h_bz_NNT", False),
        ("nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNT", False),
        # fp64, complex, fp16 that adds up in fp32, convolutions: other switches, or none.
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x128x32_stage3_tensor16x8x16", False),
        ("ampere_dgemm_64x64_nn", False),
        ("void magma_dgemmEx_kernel<double, double, double, true, false, 6, 4>(int)", False),
        ("cutlass_80_simt_cgemm_64x128_8x4_nn_align1", False),
        ("cutlass_80_simt_sgemm_f16_128x128_8x4_nn_align1", False),
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_"
            "warpsize1x2x1_g1_ffma_aligna4",
            False,
        ),
        # A program's own, of whose insides the name tells nothing.
        ("my_ampere_sgemm_128x64_tn", False),
        ("ampere_sgemm_128x32_pipe::kernel<float>(T1)", False),
        ("", False),
    ],
)
def test_what_certainly_multiplies_fp32_off_the_tensor_cores(name, lanes):
    assert is_fp32_gemm_on_cuda_cores(name) is lanes


def test_how_it_reads():
    assert str(Tile(192, 192, 64, 3, "bf16")) == "192x192 64x3 bf16"
    assert str(Tile(128, 64, inputs="f32")) == "128x64 f32"
    assert str(Tile(32, 32, 8)) == "32x32 8"


# tests/data/launches.py multiplies square matrices of these sides; where a grid has one block a
# tile, all of them together cover the product and no more.
ONE_BLOCK_A_TILE = {
    "tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel": 64,
    "tilesize64x64x8": 500,
    "tilesize128x64x8": 1024,
    "nvjet_sm90_hsh_128x64": 1024,
    "nvjet_sm90_tst_128x64": 1024,
    "s16816gemm_f16_64x64": 500,
}


def test_tiles_of_the_name_times_blocks_of_the_grid_cover_the_product(unpack):
    with closing(sqlite3.connect(unpack("launches"))) as connection:
        launches = connection.execute(
            "SELECT value, gridX * gridY FROM CUPTI_ACTIVITY_KIND_KERNEL "
            "JOIN StringIds ON id = demangledName WHERE value NOT LIKE '%fprop%' "
            "AND value NOT LIKE '%_tn_n_%'"
        ).fetchall()
    for part, side in ONE_BLOCK_A_TILE.items():
        [(one, blocks)] = {(tile(name), blocks) for name, blocks in launches if part in name}
        assert blocks == -(-side // one.rows) * -(-side // one.columns), part
