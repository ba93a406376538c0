"""The Triton kernels whose PTX lies beside this file, and how to write it again.

    python kernels.py OUT_FOLDER KERNEL:CAPABILITY...

Names end with Triton's version and the capability: gelu-3.7.1-sm90.ptx.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def gelu_of(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask, eviction_policy="evict_first")
    tl.store(y + offsets, gelu_of(values), mask=mask)


@triton.jit
def softmax(y, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row + offsets, mask=offsets < n, other=-float("inf"))
    shares = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row + offsets, shares / tl.sum(shares, axis=0), mask=offsets < n)


@triton.jit
def matmul(a, b, c, K, a_stride, b_stride, c_stride, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, DEPTH)
    left = a + rows[:, None] * a_stride + inner[None, :]
    right = b + inner[:, None] * b_stride + columns[None, :]
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, DEPTH)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += DEPTH
        right += DEPTH * b_stride
    tl.store(c + rows[:, None] * c_stride + columns[None, :], total.to(tl.float16))


@triton.jit
def tma_copy(x, y, rows, columns, TILE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [TILE, TILE])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [TILE, TILE])
    row = tl.program_id(0) * TILE
    for column in range(0, tl.cdiv(columns, TILE)):
        tile = source.load([row, column * TILE])
        target.store([row, column * TILE], tile)


SIGNATURES = {
    "gelu": "*fp32:16 *fp32:16 i32:16 1024",
    "softmax": "*fp32:16 *fp32:16 i32:16 i32 1024",
    "matmul": "*fp16:16 *fp16:16 *fp16:16 i32:16 i32:16 i32:16 i32:16 64 32",
    "tma_copy": "*fp16:16 *fp16:16 i32:16 i32:16 64",
}


def ptx_of(name, capability):
    kernel, signature, constants, attributes = globals()[name], {}, {}, {}
    for place, (argument, said) in enumerate(
        zip(kernel.arg_names, SIGNATURES[name].split(), strict=True)
    ):
        kind, _, divisible = said.partition(":")
        signature[argument] = "constexpr" if kind.isdigit() else kind
        if kind.isdigit():
            constants[(place,)] = int(kind)
        if divisible:
            attributes[(place,)] = [["tt.divisibility", int(divisible)]]
    source = ASTSource(kernel, signature, constants, attributes)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": 4}).asm["ptx"]


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        name, capability = wanted.split(":")
        text = ptx_of(name, int(capability))
        Path(sys.argv[1], f"{name}-{triton.__version__}-sm{capability}.ptx").write_text(text)

# Constants are upper case, as everywhere in Triton.
# ruff: noqa: N803, PIE808
