"""Whether a kernel computes the same with other constexprs, for real kernels as launched."""

import importlib.metadata
import importlib.util

import pytest

from tests.places import TRITON_KERNELS
from traceview.kernels.headless.compile_options import Change, CompileOptions
from traceview.kernels.headless.recompile import Recompiler
from traceview.kernels.inspect.python_targets import compile_python

pytestmark = pytest.mark.programs

for package in ("torch", "triton"):
    if not importlib.util.find_spec(package):
        pytest.skip(f"launches kernels with {package}", allow_module_level=True)
if tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) < (3, 7):
    pytest.skip("an older interpreter fails with NumPy 2.4", allow_module_level=True)

LAUNCHES = (
    *("add", "add_large", "add_fixed", "quantize_groups", "softmax", "softmax_unmasked"),
    *("matmul", "matmul_fp8", "decode"),
)


@pytest.fixture(scope="module")
def compare():
    """Compare the launch of a name with what it is with other constexprs."""
    with Recompiler() as recompiler:
        compiled = compile_python(
            str(TRITON_KERNELS / "reaches.py"),
            CompileOptions(arguments=LAUNCHES),
            recompiler=recompiler,
        )
        variants = {each.name: each for each in reversed(compiled)}

        def compared(kernel: str, **constexprs: int):
            change = Change(constexprs=tuple(constexprs.items()), resizes=True)
            return recompiler.compare(variants[kernel], change)

        yield compared


@pytest.mark.parametrize(
    ("kernel", "constexprs"),
    [
        ("add", {"BLOCK": 1024}),
        ("add", {"BLOCK": 128}),
        ("softmax", {"BLOCK": 2048}),
        ("matmul", {"BLOCK_M": 128}),
        ("matmul", {"BLOCK_K": 64}),
        ("matmul", {"GROUP_M": 4}),
        ("matmul_fp8", {"BLOCK_M": 128}),
        ("decode", {"BLOCK_T": 64}),
    ],
)
def test_a_tile_is_free_to_choose(compare, kernel, constexprs):
    assert compare(kernel, **constexprs).verdict == "same"


@pytest.mark.parametrize(
    ("kernel", "constexprs", "why"),
    [
        ("quantize_groups", {"BLOCK_SIZE": 1024}, "values of scale_ptr differ"),
        ("quantize_groups", {"BLOCK_SIZE": 64}, "it writes outside of its tensors"),
        ("softmax", {"BLOCK": 512}, "values of y_ptr differ"),
        ("softmax_unmasked", {"BLOCK": 512}, "it reads outside of its tensors"),
        ("matmul_fp8", {"BLOCK_K": 256}, "values of c_ptr differ"),
        ("decode", {"BLOCK_DMODEL": 128}, "it reads outside of its tensors"),
        ("decode", {"BLOCK_DMODEL": 32}, "values of out_ptr differ"),
    ],
)
def test_a_group_a_reach_and_a_size_are_not(compare, kernel, constexprs, why):
    answer = compare(kernel, **constexprs)
    assert answer.verdict == "differs"
    assert why in answer.detail
