"""`traceview.testing`: functions of Triton compiled here, and any other target."""

import importlib.util

import pytest

from tests.inspect.retried import allow
from tests.places import DATA
from traceview.base.errors import InputError
from traceview.testing import assert_kernel, assert_widths

NVRTC = DATA / "gelu-nvrtc-12.9-sm90.ptx"
WIDE = "*fp32:16, *fp32:16, i32:16, 1024"


@pytest.fixture
def gelu(triton_cache, monkeypatch):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the example needs PyTorch")
    allow(triton_cache, monkeypatch)
    from examples.gelu import gelu_kernel

    return gelu_kernel


def test_a_function_is_compiled_as_declared(gelu):
    report = assert_widths(gelu, signature=WIDE)
    assert [(v.condition, v.met) for v in report.verdicts] == [
        ("global load >= 128", True),
        ("global store >= 128", True),
    ]
    (kernel,) = report.kernels
    assert (kernel.name, kernel.compiled.how, kernel.compiled.num_warps) == (
        "gelu_kernel",
        "declared",
        4,
    )
    assert kernel.compiled.source_file.endswith("gelu.py")


def test_the_text_of_a_failure_says_kernel_width_and_line(gelu):
    with pytest.raises(AssertionError) as raised:
        assert_widths(gelu, signature="*fp32:16, *fp32:16, i32, 1024")
    first, load, store = str(raised.value).splitlines()
    assert first == "gelu_kernel: not as expected"
    assert load.startswith("gelu_kernel: global load >= 128: 32 bits at gelu.py:")
    assert store.startswith("gelu_kernel: global store >= 128: 32 bits at gelu.py:")
    assert load.endswith("(8 × ld.global.b32)")


def test_options_reach_the_compiler(gelu):
    signature = "*fp32:16, *fp32:16, i32:16"
    report = assert_kernel(
        gelu,
        "warps = 8, elements per thread = 8",
        signature=signature,
        constexprs={"BLOCK": 2048},
        num_warps=8,
        arch="sm_80",
    )
    assert report.arch == "sm_80"


def test_what_cannot_be_compiled_is_refused(gelu):
    with pytest.raises(InputError, match="gelu_kernel does not say the types of its arguments"):
        assert_widths(gelu)
    with pytest.raises(InputError, match="gelu_kernel does not compile as declared"):
        assert_widths(gelu, signature="*fp32:16, *fp32:16, i32:16, 1000")
    with pytest.raises(InputError, match=r"'len' is not a @triton\.jit function"):
        assert_widths(len, signature=WIDE)


def test_any_target_will_do():
    assert_kernel(NVRTC, "gelu_vector: global load >= 128, spills = 0")
    with pytest.raises(AssertionError, match="gelu_scalar: global load >= 64: 32 bits at"):
        assert_widths(str(NVRTC), 64, kinds="load")
    assert_widths(NVRTC, kernel="gelu_vector")


def test_what_nobody_can_mean_is_refused():
    with pytest.raises(InputError, match="nothing is expected"):
        assert_kernel(NVRTC)
    with pytest.raises(InputError, match="no generic accesses of kinds load"):
        assert_widths(NVRTC, space="generic", kinds="load")
    with pytest.raises(InputError, match="of kinds laod"):
        assert_widths(NVRTC, kinds="laod")
