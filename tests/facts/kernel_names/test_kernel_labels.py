"""What kernels are called: wrappers with the word that says what they do, no two alike."""

import time

import pytest

from tests.build import Export
from traceview.traces.analyses.gpu_idle.gap_evidence import operation_name
from traceview.traces.facts.kernel_classes import MOST, kernel_labels, labels

VECTOR = (
    "void at::native::vectorized_elementwise_kernel<(int)4, {}, std::array<char *, 2>>(int, T2)"
)
MUL = "at::native::{}<float, float, float, at::native::binary_internal::MulFunctor<float>>"


def labelled(*named: tuple[str, str]) -> list[str]:
    return labels([name for name, _ in named], [short for _, short in named])


@pytest.mark.parametrize(
    ("name", "short", "expected"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)",
            "Kernel2",
            "CUTLASS fp32 GEMM 128×256×8 NT",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Main>>>",
            "device_kernel",
            "FlashAttention 3 forward",
        ),
        (
            VECTOR.format("at::native::CUDAFunctor_add<c10::BFloat16>"),
            "vectorized_elementwise_kernel",
            "elementwise add bf16",
        ),
        (
            VECTOR.format("at::native::<unnamed>::launch_clamp_scalar(at::Scalar)::[lambda()]"),
            "vectorized_elementwise_kernel",
            "elementwise clamp_scalar",
        ),
        (
            VECTOR.format(MUL.format("AUnaryFunctor")),
            "vectorized_elementwise_kernel",
            "elementwise mul fp32",
        ),
        (
            "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::"
            "native::func_wrapper_t<float, at::native::sum_functor<float, float>>, float>>(T3)",
            "reduce_kernel",
            "reduce sum fp32",
        ),
        (
            "void cutlass::device_kernel<mine::enable_sm90<mine::FusedThing<mine::Main>>>",
            "device_kernel",
            "device_kernel FusedThing",
        ),
        ("vectorized_elementwise_kernel", "vectorized_elementwise_kernel", None),
        ("void Kernel2<(int)4, float>(T1)", "Kernel2", None),
        ("void gemmSN_TN_kernel<float, (int)128>(T1)", "gemmSN_TN_kernel", None),
        ("", "", None),
    ],
)
def test_a_wrapper_says_what_it_does(name, short, expected):
    """Though nothing else in the trace has its name."""
    assert labelled((name, short)) == [short if expected is None else expected]


def test_numba_kernels_are_called_as_in_the_program():
    name = "heat[abi:v1,cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3Cw6igA9duC0hkw_3d](Array<float, 2>)"
    assert labelled((name, name.partition("(")[0])) == ["heat"]


def test_kernels_of_one_base_name_have_different_labels():
    assert labelled(
        (VECTOR.format(MUL.format("AUnaryFunctor")), "vectorized_elementwise_kernel"),
        (VECTOR.format(MUL.format("BUnaryFunctor")), "vectorized_elementwise_kernel"),
        ("softmax<float, (int)4>", "softmax"),
        ("softmax<float, (int)11>", "softmax"),
        ("softmax<c10::Half, (int)11>", "softmax"),
    ) == [
        "elementwise mul fp32 AUnaryFunctor",
        "elementwise mul fp32 BUnaryFunctor",
        "softmax float 4",
        "softmax float 11",
        "softmax Half",
    ]


def test_what_is_added_is_bounded():
    long = "cutlass_" + "x" * 5000
    [said] = labelled((f"void Kernel2<{long}>()", "Kernel2"))
    assert len(said) <= len("Kernel2") + MOST
    assert said.startswith("Kernel2 cutlass_")
    # A base name is nobody's to cut here.
    assert labelled((long, long)) == [long]


def test_many_kernels_of_one_name_take_no_square_of_time():
    named = [(f"void k<(int){n}, Functor{n}>()", "k") for n in range(20_000)]
    began_s = time.process_time()
    assert len(set(labelled(*named))) == len(named)
    # It takes about half a second; comparing each name with each would take minutes.
    assert time.process_time() - began_s < 20


def test_each_run_has_the_label_of_its_kernel(tmp_path):
    export = Export()
    for at, what in enumerate(("gemm", "conv", "gemm")):
        name = f"Kernel2<cutlass_80_{what}>(T1)"
        export.launch((at, at + 1), (10 * at + 10, 10 * at + 15), name=name)
    trace = export.load(tmp_path)
    assert kernel_labels(trace).decode().tolist() == [
        "Kernel2 cutlass_80_gemm",
        "Kernel2 cutlass_80_conv",
        "Kernel2 cutlass_80_gemm",
    ]
    assert operation_name(trace, 1) == "Kernel2 cutlass_80_conv"
