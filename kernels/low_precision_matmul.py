"""Matrix product of 8-bit numbers, fp8 (e4m3) or int8: C = scale · A · Bᵀ, in bfloat16.

A is M × K, and B, N × K, is stored as a Linear layer stores its weights: fp8 tensor cores take both
operands along K only. Against fp16, half the bytes and, on Hopper, twice the products per second.
What it costs is precision of the inputs, and for fp8 that of the sum, too: Hopper's tensor cores
add up products of fp8 with about 14 bits. Taking the sum out of them every 128 products and adding
it in fp32 mends that; leaving it in there is "fast accumulation".
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.matmul import Tile, place, tile
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

# Twice as many products as in fp16 for the same room in shared memory.
# 256 columns would be one instruction, but then ptxas makes each wait for the one before (C7515).
TILES = (
    tile(256, 128, 128, warps=8, stages=3),
    tile(128, 128, 128, warps=8, stages=4),
    tile(128, 128, 128, warps=4, stages=4),
)
SMALL_TILE = tile(64, 64, 128, warps=4, stages=3)
FP8, INT8 = torch.float8_e4m3fn, torch.int8
MOST_PRODUCTS = (1 << 17) - 1
"""Of int8, each (−128)² = 2¹⁴ at most: one more, and an int32 might not hold their sum."""


def upcast(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """In bfloat16, which holds every int8 and e4m3 exactly: two copies, then twice the work."""
    wide_a, wide_b = a.to(torch.bfloat16), b.to(torch.bfloat16)
    return ((wide_a @ wide_b.T) * scale).to(torch.bfloat16)


def with_torch(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """cuBLASLt: fp8 with a precise sum and the scale in its last step; int8 scaled by torch."""
    return _with_torch(a, b, scale, fast=False)


def with_torch_fast(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """cuBLASLt, fp8 with fast accumulation."""
    return _with_torch(a, b, scale, fast=True)


def _with_torch(a: Tensor, b: Tensor, scale: Tensor, fast: bool) -> Tensor:
    if a.dtype == INT8:
        return (torch._int_mm(a, b.T) * scale).to(torch.bfloat16)
    one = torch.ones_like(scale)
    result: Tensor = torch._scaled_mm(
        a, b.T, scale_a=scale, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    return result


def _is_even(names: dict[str, Any]) -> bool:
    return all(names[axis] % names[f"BLOCK_{axis}"] == 0 for axis in "MNK")


@triton.heuristics({"EVEN": _is_even})
@triton.jit
def low_precision_kernel(
    a,
    b,
    c,
    scale,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN: tl.constexpr,
    SUM: tl.constexpr,
    AT_MOST: tl.constexpr,
):
    # As matmul's grouped_kernel. AT_MOST is how many products of fp8 tensor cores may add up by
    # themselves, all if None; the sum of int8 is an int32, and exact.
    block_m, block_n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    from_a = a + rows[:, None].to(tl.int64) * K + inner[None, :]
    from_b = b + columns[None, :].to(tl.int64) * K + inner[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for start in range(0, K, BLOCK_K):
        if EVEN:
            part_a, part_b = tl.load(from_a), tl.load(from_b)
        else:
            left = inner < K - start
            part_a = tl.load(from_a, (rows[:, None] < M) & left[None, :], 0.0)
            part_b = tl.load(from_b, left[:, None] & (columns[None, :] < N), 0.0)
        total = tl.dot(part_a, part_b, total, max_num_imprecise_acc=AT_MOST, out_dtype=SUM)
        from_a += BLOCK_K
        from_b += BLOCK_K
    result = (total.to(tl.float32) * tl.load(scale)).to(c.dtype.element_ty)
    to_c = c + rows[:, None].to(tl.int64) * N + columns[None, :]
    if EVEN:
        tl.store(to_c, result)
    else:
        tl.store(to_c, result, (rows[:, None] < M) & (columns[None, :] < N))


def precise(a: Tensor, b: Tensor, scale: Tensor, chosen: Tile | None = None) -> Tensor:
    """Triton; for fp8 each 128 products are added to the sum in fp32."""
    return _with_triton(a, b, scale, chosen, at_most=128)


def fast(a: Tensor, b: Tensor, scale: Tensor, chosen: Tile | None = None) -> Tensor:
    """Triton; the sum of fp8 stays in the tensor cores."""
    return _with_triton(a, b, scale, chosen, at_most=None)


def _with_triton(
    a: Tensor, b: Tensor, scale: Tensor, chosen: Tile | None, at_most: int | None
) -> Tensor:
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), device=a.device, dtype=torch.bfloat16)
    chosen = chosen or _tile(m, n, k, two_sums=a.dtype == FP8 and at_most is not None)
    blocks = triton.cdiv(m, chosen["BLOCK_M"]) * triton.cdiv(n, chosen["BLOCK_N"])
    kind = tl.int32 if a.dtype == INT8 else tl.float32
    low_precision_kernel[(blocks,)](a, b, c, scale, m, n, k, SUM=kind, AT_MOST=at_most, **chosen)
    return c


def _tile(m: int, n: int, k: int, two_sums: bool) -> Tile:
    """Two sums, one in fp32 and one in the tensor cores, leave room for half the tile.

    Rows at odd addresses come a byte at a time, through registers: those leave room for less.
    """
    if min(m, n) < 1024 or k % 16:
        return SMALL_TILE
    return TILES[1] if two_sums else TILES[0]


def is_fp8(a: Tensor, *_: Tensor) -> bool:
    """For int8 there is one way to add up, and it is exact."""
    return a.dtype == FP8


def is_for_cublas(a: Tensor, b: Tensor, *_: Tensor) -> bool:
    """cuBLASLt takes multiples of 16; torch's int8 product more than 16 rows."""
    return a.shape[1] % 16 == 0 and b.shape[0] % 16 == 0 and a.shape[0] > 16


def is_fp8_for_cublas(a: Tensor, b: Tensor, *_: Tensor) -> bool:
    """Both."""
    return is_fp8(a) and is_for_cublas(a, b)


def reference(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """In the type of the scale: float64, where errors are measured."""
    return a.to(scale.dtype) @ b.to(scale.dtype).T * scale


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Two square matrices, normally distributed, and the scale that brings C to about one."""
    made = torch.Generator(device=device).manual_seed(0)
    spread = 32.0 if dtype == INT8 else 1.0

    def matrix() -> Tensor:
        numbers = torch.randn(size, size, generator=made, device=device) * spread
        return numbers.clamp(-127, 127).round().to(dtype) if dtype == INT8 else numbers.to(dtype)

    scale = torch.full((), 1 / (spread**2 * size**0.5), device=device, dtype=torch.float32)
    return matrix(), matrix(), scale


def check(a: Tensor, b: Tensor, scale: Tensor) -> None:
    """M × K and N × K, both fp8 (e4m3) or both int8, contiguous, and one scale in fp32."""
    this = "low_precision_matmul"
    for name, each in (("a", a), ("b", b)):
        checks.tensor(this, name, each)
        checks.matrix(this, name, each)
    checks.same_kind(this, a, b, "a and b")
    if a.shape[1] != b.shape[1]:
        shapes = f"{a.shape[0]} × {a.shape[1]} and {b.shape[0]} × {b.shape[1]}"
        raise InputError(f"{this}: a and b are {shapes}", "give M × K and N × K")
    if a.dtype not in (FP8, INT8):
        raise InputError(f"{this}: a and b have the type {a.dtype}", "give float8_e4m3fn or int8")
    if a.dtype == INT8 and a.shape[1] > MOST_PRODUCTS:
        what = f"{this}: int32 cannot hold a sum of {a.shape[1]:,} products of int8"
        raise InputError(what, f"give at most {MOST_PRODUCTS:,} columns, or fp8")
    checks.tensor(this, "scale", scale)
    if scale.shape or scale.dtype != torch.float32 or scale.device != a.device:
        what = f"{this}: scale has the shape {tuple(scale.shape)} and type {scale.dtype}"
        raise InputError(what, "give one number in float32, on the device of a and b")


def bytes_moved(a: Tensor, b: Tensor, scale: Tensor) -> int:
    """M·K + N·K bytes read, 2·M·N bytes of bfloat16 written, and the scale."""
    return a.numel() + b.numel() + 2 * a.shape[0] * b.shape[0] + scale.element_size()


def flop(a: Tensor, b: Tensor, *_: Tensor) -> int:
    """2·M·N·K."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[0]


OPERATION = Operation(
    name="low_precision_matmul",
    title="matrix product of 8-bit numbers",
    inputs=inputs,
    reference=reference,
    versions=(
        Version("bfloat16", upcast, note="torch, converted first"),
        Version("triton", precise, "triton", "precise sum", (low_precision_kernel,)),
        Version("triton-fast", fast, "triton", "fast sum", (low_precision_kernel,), is_fp8),
        Version("torch", with_torch, "cuda", "cuBLASLt", supports=is_for_cublas),
        Version("torch-fast", with_torch_fast, "cuda", "fast sum", supports=is_fp8_for_cublas),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1024, 4096, 8192),
    small_sizes=(1, 33, 64, 144),
    # The result is rounded to 8 bits. For fp8 the fast sum loses as much again at K = 8,192.
    tolerances={"float8_e4m3fn": 1.6e-2, "int8": 8e-3},
    check=check,
    size_means="rows and columns",
    tensor_cores=True,
)
