"""Slower kernels, memsets and per-tensor optimizers: found where they are, silent elsewhere."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.base import intervals
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

US = 1_000
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Params)"
FLASH_BACK = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(Params)"
DECODE = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>(Params)"
OLD_GEMM = "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>(T1)"
UNALIGNED = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn_align2>(T1)"
NEW_GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
UPDATE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel("
    "at::TensorIteratorBase&)::[lambda()], std::array<char*, 4>>(int)"
)


def in_turn(*names, took=50 * US, times=40, major=9):
    """These kernels one after another, without a gap."""
    export = Export().gpu(0, smCount=132, computeMajor=major, computeMinor=0)
    for number in range(times * len(names)):
        span = (number * took, (number + 1) * took)
        export.kernel_without_launch(span, name=names[number % len(names)], gridX=1320)
    return export


def advice(export, folder, word):
    return [each for each in ask(ANALYSIS, export, folder).findings if word in each.message]


@pytest.mark.parametrize("name", [FLASH, FLASH_BACK])
def test_flash_attention_2_on_hopper(name, tmp_path):
    [finding] = advice(in_turn(name, NEW_GEMM), tmp_path, "FlashAttention-2")

    # 11 of 21 parts of half the time: the kernels are at most 2.1 times as slow.
    saved_ns = 40 * 50 * US * 11 / 21
    assert finding.severity == "high"
    assert finding.time_at_stake_ns == pytest.approx(saved_ns, abs=40)
    assert finding.share_of_step_pct == pytest.approx(50 * 11 / 21, rel=1e-4)
    assert "CUDNN_ATTENTION" in finding.action


ROTATIONS = (
    "void gesvdbj_batch_32x16<float, float>(long, const int *, int, T2)",
    "void svd_column_rotate_batch<float, (int)5, (int)3>(long, const int *, int)",
)


def test_singular_values_by_jacobi_rotations(tmp_path):
    export = in_turn(*ROTATIONS, UPDATE, UPDATE, took=15 * US)
    [finding] = advice(export, tmp_path, "Jacobi")

    saved_ns = 80 * 15 * US * (1 - 1 / 8.3)
    assert finding.severity == "high"
    assert finding.time_at_stake_ns == pytest.approx(saved_ns, abs=80)
    assert "driver='gesvda'" in finding.action


@pytest.mark.parametrize("names", [ROTATIONS, (UPDATE, "void gesvda_kernel(float *)")])
def test_no_driver_of_torch_is_named_elsewhere(names, tmp_path):
    assert not advice(in_turn(*names), tmp_path, "Jacobi")


@pytest.mark.parametrize(
    "export",
    [
        in_turn(FLASH, NEW_GEMM, major=8),
        in_turn(FLASH, NEW_GEMM, major=10),
        in_turn(FLASH, NEW_GEMM, took=10 * US),
        in_turn(DECODE, NEW_GEMM),
    ],
)
def test_elsewhere_flash_attention_2_is_right(export, tmp_path):
    assert not advice(export, tmp_path, "FlashAttention-2")


def test_gemms_of_which_none_is_of_the_gpu(tmp_path):
    [finding] = advice(in_turn(OLD_GEMM), tmp_path, "older architecture")

    assert finding.severity == "medium"  # 37.5 %, but less than 1 ms
    assert finding.action.startswith("Update CUDA's libraries")


@pytest.mark.parametrize(
    "export",
    [
        in_turn(OLD_GEMM, NEW_GEMM),
        in_turn(OLD_GEMM, major=8),
        in_turn(TF32),
        in_turn(UNALIGNED),
        in_turn("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_ffma_aligna4"),
    ],
)
def test_a_library_may_choose_an_older_kernel(export, tmp_path):
    assert not advice(export, tmp_path, "older architecture")


def with_memsets(name, times=1200, sizes=(4096,)):
    export = Export()
    for number in range(times):
        start = 10 * US * number
        size = sizes[number % len(sizes)]
        export.set((start, start + 2), (start + 10, start + 1010), bytes=size)
        export.launch((start + 3, start + 5), (start + 1010, start + 9 * US), name=name)
        export.sync("cudaStreamSynchronize_v3020", start + 6, start + 9 * US + 10)
    return export


def test_a_memset_before_each_kernel_of_the_program(tmp_path):
    [finding] = advice(with_memsets("jacobi"), tmp_path, "memset")

    assert finding.time_at_stake_ns == pytest.approx(1200 * 1000, rel=0.01)
    assert finding.message == (
        "1,200 kernels of the program each follow a memset (50.0 % of all operations). These "
        "memsets take 1.20 ms."
    )
    assert finding.severity == "medium"


@pytest.mark.parametrize(
    ("name", "times"), [("cub::DeviceRadixSortOnesweepKernel<int>", 1200), ("own", 900)]
)
def test_workspaces_of_libraries_and_few_memsets_are_no_storm(name, times, tmp_path):
    assert not advice(with_memsets(name, times), tmp_path, "memset")


@pytest.mark.parametrize(
    "sizes", [(4096,), (1 << 20,), (4096, 1 << 24), (512, 64, 1 << 22, 1 << 22)]
)
def test_each_memset_is_claimed_once_by_its_size(sizes, tmp_path):
    found = advice(with_memsets("jacobi", 2400, sizes), tmp_path, "memset")
    counted = [finding.evidence.values["memsets"] for finding in found]
    large = sum(size >= 1 << 20 for size in sizes) * 2400 // len(sizes)
    assert sorted(counted) == sorted(count for count in (large, 2400 - large) if count)
    parts = [finding.work.time for finding in found]
    assert (
        sum(part.total() for part in parts)
        == intervals.union(*(np.concatenate(side) for side in zip(*parts, strict=True))).total()
    )


@pytest.mark.parametrize(("names", "found"), [((UPDATE,), 1), ((NEW_GEMM,), 0)])
def test_an_optimizer_that_updates_tensor_by_tensor(names, found, tmp_path):
    findings = advice(in_turn(*names), tmp_path, "one by one")

    assert len(findings) == found
    assert all(each.action.startswith("Use foreach=True") for each in findings)


UPSAMPLED = "void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<{0}, {0}>(int)"
COMPARED = "void at::native::vectorized_elementwise_kernel<4, at::native::compare_kernel<{0}>(int)>"


@pytest.mark.parametrize("name", [UPSAMPLED, COMPARED])
@pytest.mark.parametrize(
    ("type_", "products", "found"),
    [
        ("double", (NEW_GEMM,), True),
        ("double", (TF32, OLD_GEMM), True),
        ("float", (NEW_GEMM,), False),
        ("double", ("cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1",), False),
        ("double", (NEW_GEMM, "void cutlass::Kernel<cutlass_80_simt_dgemm_64x64_8x5_nn>"), False),
        ("double", (), False),
    ],
)
def test_double_precision_beside_products_in_fewer_bits(name, type_, products, found, tmp_path):
    said = advice(in_turn(name.format(type_), *products), tmp_path, "double precision")

    assert len(said) == found
    assert all(each.time_at_stake_ns == 40 * 25 * US for each in said)
    assert all(each.severity in ("medium", "low") for each in said)


@pytest.mark.parametrize("name", [UPSAMPLED, COMPARED])
@pytest.mark.parametrize(
    ("type_", "trains"), [("double", True), ("double", False), ("float", True)]
)
def test_training_in_double_precision(name, type_, trains, tmp_path):
    """A model of double precision is told where it trains, which says nothing of its products."""
    product = "cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1"
    backward = ("void at::native::indexing_backward_kernel<float>(int)",) * trains
    said = advice(in_turn(name.format(type_), product, *backward), tmp_path, "double precision")

    assert len(said) == (trains and type_ == "double")
    assert all("fewer bits" not in each.message for each in said)
    assert all(each.action.startswith("Use float32 if it is precise enough") for each in said)
    assert all(each.severity in ("medium", "low") for each in said)
