"""Kernels compiled with the arguments of a call in the source, which Triton takes."""

from importlib.util import find_spec

import pytest

import traceview

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
QUANTIZED = """@triton.jit
def unpacked(word):
    return (word & 15).to(tl.float16)


@triton.jit
def product(a_ptr, q_ptr, scale_ptr, c_ptr, BLOCK_K: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, BLOCK_K)
    a = tl.load(a_ptr + m[:, None] * BLOCK_K + k[None, :])
    q = tl.load(q_ptr + k[:, None] * 16 + m[None, :])
    b = unpacked(q) * tl.load(scale_ptr + m)[None, :]
    tl.store(c_ptr + m[:, None] * 16 + m[None, :], tl.dot(a, b))


def run(a, q, scale):
    c = torch.zeros(a.size(0), q.size(1), dtype=scale.dtype)
    product[(1,)](a, q, scale, c, BLOCK_K=q.size(0) // scale.size(0))
"""
DESCRIBED = """from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(arguments):
    arguments["x"].block_shape = [arguments["ROWS"], 64]


@triton.autotune([triton.Config({"ROWS": 32}, pre_hook=set_blocks)], key=[])
@triton.jit
def scaled(x, y_ptr, ROWS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(y_ptr + at, x.load([0, 0]))


def run(x):
    y = torch.empty_like(x)
    scaled[(1,)](TensorDescriptor(x, x.shape, x.stride(), [1, 1]), y)
"""


def types_of(tmp_path, text):
    (tmp_path / "script.py").write_text(HEAD + text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    assert kernel.compiled.how == "called"
    return {a.name: a.value if a.type == "constexpr" else a.type for a in kernel.compiled.arguments}


def test_a_tile_is_not_1_and_tensors_of_one_type_have_one(tmp_path):
    assert types_of(tmp_path, QUANTIZED) == {
        "a_ptr": "*fp16",
        "q_ptr": "*i32",
        "scale_ptr": "*fp16",
        "c_ptr": "*fp16",
        "BLOCK_K": 32,
    }


def test_the_hook_of_a_configuration_sets_block_shapes(tmp_path):
    assert types_of(tmp_path, DESCRIBED)["x"] == "tensordesc<fp16[32, 64]>"
