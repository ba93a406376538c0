"""A linear layer and its ReLU in one kernel: y = max(0, x · wᵀ + b).

The GEMM is cuBLAS's business, but what follows it is not: as a kernel of its own, ReLU reads the
result back from memory and writes it again, and its few operations wait for that traffic. Done
before the result leaves the registers, as the matmul's epilogue, it costs next to nothing. The gain
is the traffic saved, 2 · M · N elements, against a product that takes 2 · M · N · K
operations: large for short K, small for long.

The product itself is kept simple here; see matmul for what makes one fast.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.compiled import compiled
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

# The interpreter multiplies the bits of bfloat16 as integers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def reference(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Two kernels: the product with the bias, and the ReLU."""
    return torch.relu(torch.nn.functional.linear(x, w, b))


_compiled = compiled(reference)


def with_compile(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """torch.compile: its default leaves the product to cuBLAS, and fuses what is beside it."""
    result: Tensor = _compiled(x, w, b)
    return result


@triton.jit
def relu_kernel(y, n, BLOCK: tl.constexpr = 2048):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(y + i, i < n).to(tl.float32)
    # By default the larger of NaN and 0 is 0 on a GPU: NaN would end here, unseen.
    tl.store(y + i, tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL), i < n)


@triton.jit
def linear_kernel(
    x,
    w,
    b,
    y,
    M,
    N,
    K,
    RELU: tl.constexpr = True,
    BLOCK_M: tl.constexpr = 128,
    BLOCK_N: tl.constexpr = 128,
    BLOCK_K: tl.constexpr = 64,
    GROUP: tl.constexpr = 8,
):
    # Tiles of y in groups of 8 rows of tiles, so that blocks that run together share what they
    # read of x and w through the L2 cache.
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * blocks_n) * GROUP
    height = tl.minimum(blocks_m - first, GROUP)
    inside = tl.program_id(0) % (GROUP * blocks_n)
    row = (first + inside % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = inside // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    from_x = x + row[:, None] * K + k[None, :]
    from_w = w + column[None, :] * K + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        part_x = tl.load(from_x, (row[:, None] < M) & (k[None, :] < left), other=0.0)
        part_w = tl.load(from_w, (column[None, :] < N) & (k[:, None] < left), other=0.0)
        if INTERPRETED:
            part_x, part_w = part_x.to(tl.float32), part_w.to(tl.float32)
        # float32 as three products of tf32: tensor cores, and nearly all of its digits.
        total = tl.dot(part_x, part_w, total, input_precision="tf32x3")
        from_x += BLOCK_K
        from_w += BLOCK_K
    # The epilogue: the tile is still in registers, in float32.
    total += tl.load(b + column, column < N, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    within = (row[:, None] < M) & (column[None, :] < N)
    tl.store(y + row[:, None] * N + column[None, :], total.to(y.dtype.element_ty), within)


def linear(x: Tensor, w: Tensor, b: Tensor, relu: bool) -> Tensor:
    """The product with the bias, with the ReLU or without."""
    (m, k), n = x.shape, w.shape[0]
    y = torch.empty(m, n, dtype=x.dtype, device=x.device)
    inner = 128 // x.element_size()
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    linear_kernel[grid](x, w, b, y, m, n, k, RELU=relu, BLOCK_K=inner, num_warps=8, num_stages=3)
    return y


def unfused(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Triton, two kernels: what the ReLU costs if it has to read the result back."""
    y = linear(x, w, b, relu=False)
    relu_kernel[(triton.cdiv(y.numel(), 2048),)](y, y.numel(), BLOCK=2048, num_warps=4)
    return y


def fused(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Triton, one kernel: the ReLU in the epilogue."""
    return linear(x, w, b, relu=True)


INNER = 256


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """`size` rows of 256 features, on a CPU of 37, to `size` features."""
    inner = INNER if device.startswith("cuda") else 37
    made = torch.Generator(device=device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made, device=device, dtype=torch.float32)

    x, w, b = normal(size, inner), normal(size, inner) / inner**0.5, normal(size)
    return x.to(dtype), w.to(dtype), b.to(dtype)


def check(x: Tensor, w: Tensor, b: Tensor) -> None:
    """M × K, N × K and N, of one type and device, all contiguous."""
    for name, tensor in (("x", x), ("w", w), ("b", b)):
        checks.tensor("linear_relu", name, tensor)
        checks.floating("linear_relu", name, tensor)
        checks.same_kind("linear_relu", x, tensor, f"x and {name}")
    checks.matrix("linear_relu", "x", x)
    checks.matrix("linear_relu", "w", w)
    if x.shape[1] != w.shape[1] or b.shape != w.shape[:1]:
        shapes = f"{tuple(x.shape)}, {tuple(w.shape)} and {tuple(b.shape)}"
        raise InputError(f"linear_relu takes M × K, N × K and N, not {shapes}")
    if x.shape[0] * w.shape[0] > checks.MOST_ELEMENTS:
        what = f"linear_relu: the result would have {x.shape[0] * w.shape[0]:,} elements"
        raise InputError(what, f"give fewer rows: {checks.MOST_ELEMENTS:,} elements are the most")


def bytes_moved(x: Tensor, w: Tensor, b: Tensor) -> int:
    """(M·K + N·K + N + M·N) elements: each input read once, the result written once."""
    elements = x.numel() + w.numel() + b.numel() + x.shape[0] * w.shape[0]
    return elements * x.element_size()


def flop(x: Tensor, w: Tensor, _: Tensor) -> int:
    """2·M·N·K for the product, and 2·M·N for bias and ReLU."""
    return 2 * x.shape[0] * w.shape[0] * (x.shape[1] + 1)


OPERATION = Operation(
    name="linear_relu",
    title="Linear layer with ReLU",
    inputs=inputs,
    reference=reference,
    versions=(
        Version("torch", reference, note="F.linear, then relu"),
        Version("torch.compile", with_compile, note="the same, compiled"),
        Version(
            "triton-unfused",
            unfused,
            "triton",
            "two kernels",
            kernels=(linear_kernel, relu_kernel),
        ),
        Version(
            "triton-fused",
            fused,
            "triton",
            "ReLU in the epilogue",
            kernels=(linear_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1024, 4096, 8192, 16384),
    small_sizes=(1, 33, 64, 150),
    tolerances={"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5},
    check=check,
    size_means="rows and features",
    facts={"features in": "256 on a GPU, 37 on a CPU"},
    tensor_cores=True,
)
