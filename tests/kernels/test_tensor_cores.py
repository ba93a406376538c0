"""What the kernels for tensor cores compile to for Hopper: no GPU is needed to see it."""

import re

import pytest

from tests.places import REPOSITORY
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Access

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")

LAUNCH = "traceview/trials/bench/widths.py"


def reports(
    name: str, size: int, dtype: str, *versions: str, sass: bool = True
) -> dict[str, KernelReport]:
    """By kernel, what is said of it as it is, without a recompilation."""
    arguments = [f"kernels/{name}.py", str(size), dtype, *versions]
    compiled = compile_python(LAUNCH, CompileOptions(arch="sm_90", arguments=arguments))
    return {each.name: inspect(each, sass=sass) for each in compiled}


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(REPOSITORY)


def is_clean(kernel: KernelReport) -> bool:
    """Nothing is spilled, and no remark of ptxas that it makes the tensor cores wait."""
    return kernel.spill_bytes == 0 and not kernel.compiled.notes


def uses_wgmma(kernel: KernelReport) -> bool:
    return any("wgmma" in each.operation for each in kernel.tensor_ops)


def async_copies(kernel: KernelReport) -> list[Access]:
    return [each for each in kernel.accesses if each.kind == "async-copy"]


def copies(kernel: KernelReport) -> set[int]:
    """Bits of each asynchronous copy."""
    return {each.width_bits for each in async_copies(kernel)}


@pytest.mark.programs
def test_attention_forward_and_backward():
    found = reports("flash_attention_backward_causal", 512, "bfloat16", "triton", sass=False)
    assert set(found) == {"forward_kernel", "prepare_kernel", "query_kernel", "key_kernel"}
    for kernel in found.values():
        assert is_clean(kernel), kernel.compiled.notes
    del found["prepare_kernel"]
    for kernel in found.values():
        assert uses_wgmma(kernel)
        moved = {each.opcode for each in async_copies(kernel)}
        assert moved
        assert all(opcode.startswith("cp.async.bulk.tensor") for opcode in moved)


@pytest.mark.programs
def test_products_in_large_tiles():
    found = reports("matmul", 4096, "float16", "triton-naive", "triton-grouped")
    grouped, naive = found["grouped_kernel"], found["naive_kernel"]
    assert is_clean(grouped)
    assert uses_wgmma(grouped)
    assert copies(grouped) == {128}
    # 32 rows are too few for an instruction of Hopper: those of the GPUs before it are left.
    assert not uses_wgmma(naive)


@pytest.mark.programs
def test_products_of_8_bits():
    (kernel,) = reports("low_precision_matmul", 4096, "int8", "triton").values()
    assert is_clean(kernel)
    assert uses_wgmma(kernel)
    assert copies(kernel) == {128}


def test_relu_lets_nan_through():
    """On a GPU max.f32 makes 0 of it; the interpreter does not, and cannot tell."""
    file = REPOSITORY / "kernels" / "linear_relu.py"
    for name, constexprs in (("relu_kernel", {}), ("linear_kernel", {"RELU": "True"})):
        options = CompileOptions(kernel=name, arch="sm_90", constexprs=constexprs)
        (compiled,) = compile_python(str(file), options)
        assert set(re.findall(r"\bmax[.\w]*", compiled.ptx)) == {"max.NaN.f32"}, name
