"""Convolutions in fp32 and TF32, and conversions of layouts: found where 16 bits are faster."""

import pytest

import traceview
from tests.analyses.single_answer import ask
from tests.build import Export
from tests.trace.kineto import traces
from traceview.base import units
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

US = 1_000
TF32 = (
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x256x32_warpgroup"
    "size1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn"
)
TF32_TEMPLATE = (
    "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::conv::kernel::ImplicitGemmConvolution<"
    "cutlass__5x_cudnn::conv::threadblock::ImplicitGemmMultistage<cutlass__5x_cudnn::tfloat32_t>>>"
)
TF32_CUTLASS = (
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x5_nhwc_"
    "unity_stride_align4>(T1::Params)"
)
BF16 = TF32.replace("f32f32_tf32f32_f32", "bf16bf16_bf16f32_f32")
VOLTA = "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1"
VOLTA_FP16 = "volta_fp16_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, (bool)0, (bool)1>(params)"
FFT = "void vector_fft_symm_r2c<(unsigned int)128, EPT<(unsigned int)8>, (unsigned int)8>(T1)"
GROUP_NORM = "void at::native::<unnamed>::ComputeFusedParamsCUDAKernel<float>(long, float *)"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl<float>>"
V100 = {"name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0, "smCount": 80}
H200 = {"name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "smCount": 132}


def in_turn(gpu, *names):
    """Forty of each kernel, 50 µs each, one after another and without a gap."""
    export = Export().gpu(0, **gpu)
    for number in range(40 * len(names)):
        span = (number * 50 * US, (number + 1) * 50 * US)
        export.kernel_without_launch(span, name=names[number % len(names)], gridX=1320)
    return export


def advice(export, folder, word):
    return [each for each in ask(ANALYSIS, export, folder).findings if word in each.message]


def test_convolutions_in_tf32(tmp_path):
    [finding] = advice(in_turn(H200, TF32, RELU), tmp_path, "Convolutions in TF32")

    assert finding.message.startswith(
        "Convolutions in TF32 take 2.00 ms (50.0 % of kernel time); bf16 is up to "
        "2.0× faster. Other 32-bit kernels between them, such as normalization, take 2.00 ms, and "
        "half of that at best in 16 bits."
    )
    # The peak rates of TF32 and bf16 in the data sheet: 494.7 and 989.4 TFLOP/s.
    assert finding.time_at_stake_ns == pytest.approx(2_000 * US, rel=1e-3)
    assert finding.saving == "at-most"
    assert "bf16" in finding.action


@pytest.mark.parametrize("between", [1, 3])
@pytest.mark.parametrize("name", [TF32, TF32_TEMPLATE, TF32_CUTLASS])
def test_the_sum_of_best_cases_is_a_bound(tmp_path, name, between):
    """Replayed or not, and however the library writes the type that it convolves."""
    export = Export().gpu(0, **H200)
    for number in range(40 * (1 + between)):
        begin, kernel = number * 50 * US, RELU if number % (1 + between) else name
        call = (begin // 10, begin // 10 + 4 * US)
        export.launch(call, (begin + US, begin + 50 * US), name=kernel, gridX=1320)

    [finding] = advice(export, tmp_path, "Convolutions in TF32")

    assert finding.saving == "at-most"
    assert finding.edit is not None
    assert finding.time_at_stake_ns <= 40 * (1 + between) * 25 * US
    assert f"({units.percent(100 / (1 + between))} of kernel time)" in finding.message


def test_gemms_in_tf32_are_convolutions_of_one_by_one(tmp_path):
    gemm = TF32.replace("fprop_implicit_gemm", "gemm").replace("cudnn", "cublas")
    half = RELU.replace("float", "c10::BFloat16")
    [finding] = advice(in_turn(H200, TF32, gemm, half), tmp_path, "Convolutions in TF32")

    assert finding.time_at_stake_ns == pytest.approx(2_000 * US, rel=1e-3)


def test_fp32_gemms_have_a_finding_of_their_own(tmp_path):
    gemm = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_aligna4"
    half = RELU.replace("float", "c10::BFloat16")
    [finding] = advice(in_turn(H200, TF32, gemm, half), tmp_path, "Convolutions in TF32")
    assert "Other" not in finding.message
    assert finding.time_at_stake_ns == pytest.approx(1_000 * US, rel=1e-3)


def test_kernels_of_16_bits_and_optimizers_keep_their_time(tmp_path):
    half = RELU.replace("float", "c10::BFloat16")
    adam = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
    [finding] = advice(in_turn(H200, TF32, half, adam), tmp_path, "Convolutions in TF32")

    assert finding.time_at_stake_ns == pytest.approx(1_000 * US, rel=1e-3)


def test_convolutions_in_fp32_before_tf32(tmp_path):
    """V100: fp32 15.7, fp16 on tensor cores 125 TFLOP/s."""
    [finding] = advice(in_turn(V100, VOLTA, RELU), tmp_path, "Convolutions in fp32")

    less = 1 - 15.7 / 125 + 0.5
    assert finding.time_at_stake_ns == pytest.approx(2_000 * US * less, rel=1e-3)
    assert "TF32" not in finding.message + finding.action


@pytest.mark.parametrize(
    ("other", "scales"),
    [(RELU, False), ("cudnn::bn_bw_1C11_kernel_new", True), ("FusedAdamMathFunctor<float>", True)],
)
def test_gradients_are_scaled_where_there_are_some(other, scales, tmp_path):
    [finding] = advice(in_turn(V100, VOLTA, RELU, other), tmp_path, "Convolutions in fp32")

    assert (" to fp16, with torch.amp.GradScaler: the" in finding.action) == scales
    assert "to fp16: the" in finding.action or scales


@pytest.mark.parametrize(
    ("name", "capability", "kernel", "word", "factor"),
    [
        ("GeForce RTX 2080 Ti", (7, 5), VOLTA, "Convolutions in fp32", 4),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", (12, 0), TF32, "Convolutions in TF32", 2),
    ],
)
def test_convolutions_on_geforce_cards_of_unknown_rates(
    name, capability, kernel, word, factor, tmp_path
):
    major, minor = capability
    gpu = {"name": name, "computeMajor": major, "computeMinor": minor, "smCount": 46}
    half = RELU.replace("float", "c10::Half")
    [finding] = advice(in_turn(gpu, kernel, half), tmp_path, word)

    assert f"{factor}.0× faster" in finding.message
    assert finding.time_at_stake_ns == pytest.approx(2_000 * US * (1 - 1 / factor), rel=1e-3)


def test_conversions_of_the_layout(tmp_path):
    [finding] = advice(in_turn(H200, TO_NHWC, BF16, RELU), tmp_path, "NHWC")

    assert finding.message == (
        "cuDNN's conversions of images between NCHW and NHWC take 2.00 ms (33.3 % of kernel "
        "time) in 40 kernels."
    )
    assert finding.time_at_stake_ns == 2_000 * US
    assert finding.saving == "at-least"
    assert "channels_last" in finding.action


@pytest.mark.parametrize(
    "export",
    [
        in_turn(H200, BF16, RELU),
        in_turn(V100, VOLTA_FP16, RELU),
        # fp32 layouts of images on a V100 have kernels of their own.
        in_turn(V100, TO_NHWC, VOLTA_FP16, RELU),
        # No program of PyTorch.
        in_turn(H200, TF32, TO_NHWC, "cupy_add"),
        in_turn({"name": "Made Up 9000", "computeMajor": 7, "computeMinor": 5}, VOLTA, RELU),
        in_turn(H200, TF32, *[RELU] * 10),
        in_turn(H200, BF16, TO_NHWC, FFT, RELU),
        in_turn(H200, BF16, TO_NHWC, GROUP_NORM, RELU),
    ],
    ids=[
        *("bf16", "fp16", "layout on V100", "CuPy", "rates unknown", "under a tenth"),
        *("torch.fft", "GroupNorm"),
    ],
)
def test_nothing_to_say(export, tmp_path):
    assert not advice(export, tmp_path, "onvol")
    assert not advice(export, tmp_path, "NHWC")


def test_other_kernels_on_nchw_are_more_than_the_conversions(tmp_path):
    norm = "void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, (int)512, (bool)1, (int)1>(T2)"
    depthwise = "void at::native::<unnamed>::conv_depthwise2d_backward_kernel<(int)3>(int)"

    [finding] = advice(in_turn(H200, TO_NHWC, *(norm, depthwise) * 20), tmp_path, "conversions")

    assert finding.message.endswith(
        "Normalization and depthwise convolutions on NCHW take another 80.0 ms; most are faster on "
        "NHWC."
    )
    assert finding.severity == "medium"
    # The conversions are the least that is saved.
    assert (finding.time_at_stake_ns, finding.saving) == (2_000 * US, "at-least")


@pytest.mark.parametrize("tile", ["16x32_half", "64x16_pack_4x1_ediv_2x1_half", "32x32_dword"])
@pytest.mark.parametrize("each_us", [40, 400])
def test_conversions_of_miopen_ask_it_for_the_layout(tmp_path, tile, each_us):
    around = {"header": {"deviceProperties": [traces.MI300], "hip_runtime_version": 70051831}}
    names = (f"batched_transpose_{tile}", "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1", RELU)
    events, at = [], 1_000
    for number in range(60):
        took = each_us if number % 3 == 0 else 500
        events.append(traces.call("hipLaunchKernel", 6 * number, 4, number))
        events.append(traces.kernel(names[number % 3], at, took, number))
        at += took
    trace = traceview.load(traces.write(tmp_path / "t.json", events, **around))
    said = [f.finding for f in traceview.analyze(trace).findings if "MIOpen" in f.finding.message]
    assert [f"take {units.duration(20 * each_us * US)}" in f.message for f in said] == [True]
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in said[0].action
    assert "cuDNN" not in said[0].message
