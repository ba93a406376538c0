"""The framework of a recording, by the names of its kernels and ranges."""

import pytest

from tests.build import Export
from traceview.traces.facts.kernel_classes import framework


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>(int)", "torch"),
        ("triton_poi_fused_add_0", "torch"),
        ("cupy_add__float32", "cupy"),
        ("loop_add_fusion", "jax"),
        ("wrapped_convert", "jax"),
        ("heat[abi:v1,cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3Cw](Array<float, 2>)", "numba"),
        ("JacobiMethod(float *)", ""),
        ("solve[abi:cxx11](float *)", ""),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn", ""),
    ],
)
def test_by_kernels(tmp_path, kernel, expected):
    trace = Export().launch((0, 1), (10, 20), name=kernel).load(tmp_path)
    assert framework(trace) == expected


def test_by_ranges(tmp_path):
    trace = Export().range("XlaModule:#jit_step#", 0, 10).load(tmp_path)
    assert framework(trace) == "jax"
