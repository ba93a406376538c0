"""Whose kernel it is, by names of real recordings."""

import pytest

from traceview.base.vocabulary.kernel_words import KernelOwner
from traceview.base.vocabulary.libraries import owner_of

OWN, COMPILER, LIBRARY = KernelOwner.PROGRAM, KernelOwner.COMPILER, KernelOwner.LIBRARY


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("JacobiMethod(const float *, const double *, float, double *)", OWN),
        ("gelu_kernel", OWN),
        ("void spin<4>(int)", OWN),
        ("triton_poi_fused_add_mul_tanh_0", COMPILER),
        ("loop_add_fusion", COMPILER),
        ("wrapped_add", COMPILER),
        ("void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float>(long)", LIBRARY),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(T1)", LIBRARY),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", LIBRARY),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3", LIBRARY),
        ("void wgrad_alg0_engine<float, (int)128, (int)5>(int, int)", LIBRARY),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float>(float)", LIBRARY),
        ("cupy_sum", LIBRARY),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", LIBRARY),
        ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN", LIBRARY),
        # Of MIOpen, rocPRIM and Composable Kernel.
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f3x2_stride1", LIBRARY),
        ("MIOpenBatchNormFwdTrainSpatial.kd", LIBRARY),
        ("naive_conv_ab_nonpacked_wrw_nchw_half_double_half", LIBRARY),
        ("igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", LIBRARY),
        ("void rocprim::detail::radix_sort_kernel<int>(int *)", LIBRARY),
        ("void ck_tile::kentry<256, 2, FmhaFwd>(Args)", LIBRARY),
        ("void ck::kernel_gemm_xdl_cshuffle_v3<Gemm>(Args)", LIBRARY),
        ("pack::naive_convolution(float *)", OWN),
        ("loop_depth", OWN),
        ("void cub::DeviceRadixSortOnesweepKernel<int>(int *)", LIBRARY),
        # Of cuSOLVER, cuBLAS and cuFFT, which put them into no namespace.
        ("void kernel<getrf_wo_pivot_params_<float, (int)0, (int)256>>(int, int, void *)", LIBRARY),
        ("void kernel_trsm_l_mul32<float, (int)8, (bool)0>(int, int, const T1 *)", LIBRARY),
        ("void trsv_lt_exec_up<float, (unsigned int)32>(int, const T1 *, long)", LIBRARY),
        ("void gesvdbj_batch_32x16<float, float>(long, const int *, int, T2)", LIBRARY),
        ("void svd_column_rotate_batch<float, (int)5, (int)3>(long, const int *, int)", LIBRARY),
        ("void pegasus_sortI32_by_key_merge_core<(int)256, (int)4>(int, unsigned int *)", LIBRARY),
        ("pegasusIinclusive_scan_merge_core<(int)256>(int, int *)", LIBRARY),
        ("void geqr2_gmem_domino<float, float, (int)9>(int, int, T1 *)", LIBRARY),
        ("xxtrf4_set_info_ker(int, int *)", LIBRARY),
        ("void convert_CsrToCoo_kernel<(int)0>(const int *, int, int, int *)", LIBRARY),
        ("void batched_svd_parallel_jacobi_32x16<float, float>(int, float *)", LIBRARY),
        ("void kernel::syevbj_batch_32x16<double, double>(long)", LIBRARY),
        ("void laed4_par<float>(int)", LIBRARY),
        ("void batch_trsm_lower_unit_v1_kernel<float>(int)", LIBRARY),
        ("void glu_csrilu0_find_structure_zero(int)", LIBRARY),
        ("void rotate_columns(float *)", OWN),
        ("void get_rows(float *)", OWN),
        ("void postprocess(float *)", OWN),
        ("void layernorm_forward(float *)", OWN),
        ("void system_step(float *)", OWN),
        ("glu_forward_kernel", OWN),
        ("void larger_than(float *)", OWN),
        ("void stencil(float *)", OWN),
        ("void regular_fft<(unsigned int)2048, EPT<(unsigned int)8>, (unsigned int)4>()", LIBRARY),
        ("void kernel<float>(float *)", OWN),
        # Views of tensors are arguments of kernels of extensions.
        ("void edges<float>(at::GenericPackedTensorAccessor<T1, 2, at::RestrictPtrTraits>)", OWN),
        ("void edges<float>(torch::PackedTensorAccessor32<T1, 2, torch::RestrictPtrTraits>)", OWN),
        ("void at::native::col2im<float>(at::GenericPackedTensorAccessor<T1, 2>)", LIBRARY),
        # A generator's state is an argument; cuRAND's own kernels are made for one.
        ("evolve(int *, curandStateXORWOW *, int *)", OWN),
        ("void gen_sequenced<curandStateXORWOW, float, int>(T1 *, T2 *, unsigned long)", LIBRARY),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1", LIBRARY),
        ("bmm_tiled(float *, float *)", OWN),
        ("void vision::ops::gather_keep_from_mask(bool *)", LIBRARY),
    ],
)
def test_owners_of_kernels(name, owner):
    assert owner_of(name) is owner
