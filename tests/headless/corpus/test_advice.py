"""Proven remedies of public kernels, all at once, compiled by Triton itself: make corpus."""

import importlib.util
import re

import pytest

from tests.headless.corpus.kernels_of import corpus_kernels
from tests.headless.corpus.plain_triton import kernel_in, ptx_of, widths_at
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.target_report import inspect_target

ADVISED = (
    ("attorch", "glu_forward_kernel"),
    ("attorch", "p_loss_forward_kernel"),
    ("attorch", "softmax_forward_kernel"),
    ("autoawq", "awq_gemm_kernel"),
    ("bitsandbytes", "dequant_8bit_kernel"),
    ("compressed_tensors", "_pack_fp4_kernel"),
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
RECOMPILED = re.compile(r"recompiled with (.*?): (\d+) bits instead of (\d+)")
OPTIONS = ("num_warps", "num_stages")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="compiles with Triton"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="imports PyTorch"),
]


def described(change: str) -> tuple[list[str], dict[str, int]]:
    """The arguments to make divisible and the values to set, of the first of alternatives."""
    divisible, values = list[str](), dict[str, int]()
    names = change.partition(" divisible by 16")[0] if "divisible by 16" in change else ""
    divisible += [name for name in names.split(" and ") if name]
    rest = change.removeprefix(f"{names} divisible by 16").partition(" or ")[0]
    for name, value in re.findall(r"(\w+)=(-?\d+)", rest):
        values[name] = int(value)
    return divisible, values


def promised(report: KernelReport) -> list[tuple[int, int, tuple[list[str], dict[str, int]]]]:
    """The line, the width in bits and the change of each proven remedy."""
    found = []
    for finding in report.findings:
        values, basis = finding.evidence.values, finding.evidence.basis
        shown = RECOMPILED.search(basis)
        if shown and values.get("proven") and not values.get("withdrawn") and ", but " not in basis:
            line = int(str(values["line"]).rpartition(":")[2])
            found.append((line, int(shown[2]), described(shown[1])))
    return found


def test_a_change_is_read_from_the_text_of_a_report():
    assert described("n divisible by 16") == (["n"], {})
    assert described("a and b divisible by 16, BLOCK=512") == (["a", "b"], {"BLOCK": 512})
    assert described("BLOCK=512 or num_warps=2") == ([], {"BLOCK": 512})


@pytest.mark.parametrize(("project", "name"), ADVISED)
def test_all_remedies_at_once_reach_the_width_that_each_promised(project, name):
    (kernel,) = (k for k in corpus_kernels() if (k.project, k.name) == (project, name))
    if not kernel.path.is_file():
        pytest.skip("the kernels of public packages are not here: make corpus")
    reports = inspect_target(kernel.target, CompileOptions()).kernels
    report, promises = next((each, p) for each in reports if (p := promised(each)))
    compiled, options = report.compiled, dict[str, int]()
    arguments = compiled.arguments
    constants = {a.name: a.value for a in arguments if a.type == "constexpr"}
    divisible = {a.name for a in arguments if a.divisible_by_16}
    options = {"num_warps": compiled.num_warps, "num_stages": compiled.num_stages}
    for _, _, (aligned, changed) in promises:
        divisible |= set(aligned)
        for name_of, value in changed.items():
            (options if name_of in OPTIONS else constants)[name_of] = value
    types = {a.name: a.type for a in arguments}
    ptx = ptx_of(kernel_in(kernel.path, name), types, constants, divisible, options)
    for line, width, _ in promises:
        found = widths_at(ptx, line)
        assert max(found, default=0) >= width, (line, width, found)
