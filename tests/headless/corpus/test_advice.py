"""Proven remedies of public kernels, all at once, compiled by Triton itself: make corpus."""

import importlib.util

import pytest

from tests.headless.corpus.confirmed_remedies import described, promised, unconfirmed
from tests.headless.corpus.kernels_of import corpus_kernels
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.target_report import inspect_target

ADVISED = (
    ("attorch", "glu_forward_kernel"),
    ("attorch", "p_loss_forward_kernel"),
    ("attorch", "softmax_forward_kernel"),
    ("autoawq", "awq_gemm_kernel"),
    ("bitsandbytes", "dequant_8bit_kernel"),
    ("fla_core", "softmax_fwd_kernel"),
    ("flash_attn", "_layer_norm_fwd_1pass_kernel"),
    ("liger_kernel", "_llama4_rope_kernel"),
    ("lightllm", "_fwd_kernel_flash_decode_stage2"),
    ("mamba_ssm", "_swiglu_fwd_kernel"),
    ("mamba_ssm", "_state_passing_fwd_kernel"),
    ("torchao", "_to_fp8_row_major"),
    ("triton_kernels", "add_vectors"),
    ("unsloth", "act_quant_kernel"),
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="compiles with Triton"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="imports PyTorch"),
]


def test_a_change_is_read_from_the_text_of_a_report():
    assert described("n divisible by 16") == (("n",), ())
    assert described("a and b divisible by 16, BLOCK=512") == (("a", "b"), (("BLOCK", 512),))
    assert described("BLOCK=512 or num_warps=2") == ((), (("BLOCK", 512),))


@pytest.mark.parametrize(("project", "name"), ADVISED)
def test_all_remedies_at_once_reach_the_width_that_each_promised(project, name):
    (kernel,) = (k for k in corpus_kernels() if (k.project, k.name) == (project, name))
    if not kernel.path.is_file():
        pytest.skip("the kernels of public packages are not here: make corpus")
    reports = inspect_target(kernel.target, CompileOptions()).kernels
    report, promises = next((each, p) for each in reports if (p := promised(each)))
    assert unconfirmed(kernel.path, report, promises) == []
