"""Matrix product C = A · B, all three stored row by row.

Every element of C takes K products, 2·M·N·K operations in all, over (M·K + K·N + M·N) elements: at
4096 cubed in fp16 that is 1,365 operations for each byte, where the H200's tensor cores do about
200 in the time in which its memory moves one. So memory is not the limit unless a version reads
its inputs again and again: a tile of C of 32 × 32 reads a row of A and a column of B once for 32
results, one of 128 × 256 for four to eight times as many.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import checks
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

Precision = Literal["tf32", "tf32x3", "ieee"]
"""How tensor cores multiply fp32: rounded to TF32 (10 bits of mantissa, as torch does after
torch.set_float32_matmul_precision("high")); as three products of TF32 that add up to nearly fp32;
or not at all, as ieee leaves it to the ordinary units, at a tenth of the speed."""

Tile = dict[str, int]
"""Of a block: BLOCK_M, BLOCK_N and BLOCK_K, GROUP, num_warps, num_stages."""


def tile(m: int, n: int, k: int, warps: int, stages: int) -> Tile:
    """A block computes m × n results, k products at a time, with loads `stages` steps ahead."""
    shape = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}
    return {**shape, "num_warps": warps, "num_stages": stages}


# Hopper's tensor cores read both operands from shared memory, 64 rows for each 4 warps. Shared
# memory has 227 KiB: (128 · 64 + 64 · 256) elements of 2 bytes, 3 times, are 144.
TILES = (
    tile(128, 256, 64, warps=8, stages=3),
    tile(128, 256, 64, warps=8, stages=4),
    tile(128, 128, 64, warps=8, stages=4),
    tile(128, 128, 64, warps=4, stages=4),
    tile(64, 128, 64, warps=4, stages=4),
)
# fp32 takes twice the room in shared memory and, split for tf32x3, in registers.
FLOAT32_TILE = tile(64, 128, 32, warps=4, stages=3)
SMALL_TILE = tile(64, 64, 64, warps=4, stages=4)
# Loads are wide where sizes are multiples of 16. Others come through registers, one by one, and
# leave less room for results there.
ODD_TILE = tile(128, 128, 32, warps=8, stages=2)


# Triton's interpreter multiplies the bit patterns of bfloat16 in tl.dot, as integers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr = None):
    # On tensor cores: two tiles of 16 bits an element, or fp32 as PRECISION says, added to fp32.
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)


def with_torch(a: Tensor, b: Tensor) -> Tensor:
    """cuBLAS, on a GPU: fp32 as torch.set_float32_matmul_precision says."""
    return a @ b


@triton.jit
def naive_kernel(a, b, c, M, N, K, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    # Blocks go through C row by row. Those that run at the same time want a few rows of A and all
    # of B: for large B, more than L2 holds.
    blocks_n = tl.cdiv(N, BLOCK)
    rows = (tl.program_id(0) // blocks_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    columns = (tl.program_id(0) % blocks_n) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        in_a = (rows[:, None] < M) & (inner[None, :] < K)
        in_b = (inner[:, None] < K) & (columns[None, :] < N)
        part_a = tl.load(a + rows[:, None] * K + inner[None, :], in_a, 0.0)
        part_b = tl.load(b + inner[:, None].to(tl.int64) * N + columns[None, :], in_b, 0.0)
        total = product(part_a, part_b, total, PRECISION)
    in_c = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, in_c)


def naive(a: Tensor, b: Tensor, precision: Precision | None = None) -> Tensor:
    """Triton, a tile of 32 × 32 per block, row by row, with a mask at every step."""
    c, (m, n, k) = _result(a, b)
    blocks = triton.cdiv(m, 32) * triton.cdiv(n, 32)
    naive_kernel[(blocks,)](a, b, c, m, n, k, BLOCK=32, PRECISION=_precision(precision))
    return c


@triton.jit
def place(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    # Grouped order: 8 rows of tiles at a time, column by column. 132 blocks at once then need
    # about 8 + 17 stripes of A and B instead of 1 + 132, and L2 serves all but the first read.
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = (index // (GROUP * blocks_n)) * GROUP
    height = min(blocks_m - first, GROUP)
    inside = index % (GROUP * blocks_n)
    return first + inside % height, inside // height


def _is_even(names: dict[str, Any]) -> bool:
    return all(names[axis] % names[f"BLOCK_{axis}"] == 0 for axis in "MNK")


@triton.heuristics({"EVEN": _is_even})
@triton.jit
def grouped_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block_m, block_n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    from_a = a + rows[:, None].to(tl.int64) * K + inner[None, :]
    from_b = b + inner[:, None].to(tl.int64) * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        # Where all sizes are multiples of the tile's there is nothing to mask in the inner loop.
        if EVEN:
            part_a, part_b = tl.load(from_a), tl.load(from_b)
        else:
            left = inner < K - start
            part_a = tl.load(from_a, (rows[:, None] < M) & left[None, :], 0.0)
            part_b = tl.load(from_b, left[:, None] & (columns[None, :] < N), 0.0)
        total = product(part_a, part_b, total, PRECISION)
        from_a += BLOCK_K
        from_b += BLOCK_K * N
    to_c = c + rows[:, None].to(tl.int64) * N + columns[None, :]
    if EVEN:
        tl.store(to_c, total.to(c.dtype.element_ty))
    else:
        in_c = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(to_c, total.to(c.dtype.element_ty), in_c)


def grouped(
    a: Tensor, b: Tensor, precision: Precision | None = None, chosen: Tile | None = None
) -> Tensor:
    """Triton, large tiles in grouped order, loads some steps ahead, masks only where needed."""
    c, (m, n, k) = _result(a, b)
    chosen = chosen or _tile(a, m, n)
    blocks = triton.cdiv(m, chosen["BLOCK_M"]) * triton.cdiv(n, chosen["BLOCK_N"])
    grouped_kernel[(blocks,)](a, b, c, m, n, k, PRECISION=_precision(precision), **chosen)
    return c


def _config(chosen: Tile) -> triton.Config:
    names = {name: value for name, value in chosen.items() if name.isupper()}
    return triton.Config(names, num_warps=chosen["num_warps"], num_stages=chosen["num_stages"])


# The first call for new sizes times each of them; Triton keeps the best on disk. The interpreter
# has nothing to time: there the first stands for all.
CANDIDATES = [_config(each) for each in (*TILES[::2], FLOAT32_TILE)]
autotuned_kernel = triton.autotune(
    CANDIDATES[:1] if triton.knobs.runtime.interpret else CANDIDATES,
    key=["M", "N", "K"],
    cache_results=True,
)(grouped_kernel)


def autotuned(a: Tensor, b: Tensor, precision: Precision | None = None) -> Tensor:
    """The same kernel, with the tile that is fastest at these sizes on this GPU."""
    c, (m, n, k) = _result(a, b)

    def grid(chosen: Tile) -> tuple[int]:
        return (triton.cdiv(m, chosen["BLOCK_M"]) * triton.cdiv(n, chosen["BLOCK_N"]),)

    autotuned_kernel[grid](a, b, c, m, n, k, PRECISION=_precision(precision))
    return c


@triton.jit
def persistent_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # One block an SM, which goes from tile to tile: while it stores one, loads of the next are on
    # their way. The tensor memory accelerator (TMA) moves whole tiles: one thread asks, no thread
    # computes addresses, and what lies outside of a matrix reads as zero and is not written.
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for index in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        block_m, block_n = place(index, M, N, BLOCK_M, BLOCK_N, GROUP)
        row, column = block_m * BLOCK_M, block_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            part_a, part_b = a.load([row, start]), b.load([start, column])
            total = product(part_a, part_b, total, PRECISION)
        c.store([row, column], total.to(c.dtype))


def persistent(
    a: Tensor, b: Tensor, precision: Precision | None = None, chosen: Tile | None = None
) -> Tensor:
    """Triton, one block per SM, tiles moved by TMA through descriptors."""
    c, (m, n, k) = _result(a, b)
    chosen = chosen or _tile(a, m, n)
    shape_m, shape_n, shape_k = (chosen[f"BLOCK_{axis}"] for axis in "MNK")
    shapes = ([shape_m, shape_k], [shape_k, shape_n], [shape_m, shape_n])
    described = [
        TensorDescriptor.from_tensor(each, shape)
        for each, shape in zip((a, b, c), shapes, strict=True)
    ]
    blocks = min(_sm_count(a), triton.cdiv(m, shape_m) * triton.cdiv(n, shape_n))
    persistent_kernel[(blocks,)](*described, m, n, k, PRECISION=_precision(precision), **chosen)
    return c


def is_for_tma(a: Tensor, b: Tensor) -> bool:
    """TMA takes rows, of the result, too, and beginnings at multiples of 16 bytes."""
    # Of a single row torch may have any stride, and calls it contiguous: of a column, turned, 1.
    rows = (elements * a.element_size() for elements in (a.stride(0), b.stride(0), b.shape[1]))
    return all(number % 16 == 0 for number in (*rows, a.data_ptr(), b.data_ptr()))


def _result(a: Tensor, b: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
    (m, k), n = a.shape, b.shape[1]
    return torch.empty((m, n), device=a.device, dtype=a.dtype), (m, n, k)


def _tile(a: Tensor, m: int, n: int) -> Tile:
    """Large tiles read less; so large that some SMs have none, they gain nothing."""
    if a.element_size() > 2:
        return FLOAT32_TILE
    if a.shape[1] % 16 or n % 16:
        return ODD_TILE
    fits = (each for each in (TILES[0], TILES[2]) if _tiles(each, m, n) >= _sm_count(a))
    return next(fits, SMALL_TILE)


def _tiles(chosen: Tile, m: int, n: int) -> int:
    return triton.cdiv(m, chosen["BLOCK_M"]) * triton.cdiv(n, chosen["BLOCK_N"])


def _sm_count(a: Tensor) -> int:
    """On a CPU 4 stand for it, so that the interpreter's blocks have several tiles each, too."""
    if a.device.type != "cuda":
        return 4
    count: int = torch.cuda.get_device_properties(a.device).multi_processor_count
    return count


def _precision(precision: Precision | None) -> Precision:
    """The given precision, or that which torch is set to."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return precision or ("tf32x3" if exact else "tf32")


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor]:
    """Two square matrices of `size` rows, normally distributed."""
    made = torch.Generator(device=device).manual_seed(0)

    def matrix() -> Tensor:
        return torch.randn(size, size, generator=made, device=device).to(dtype)

    return matrix(), matrix()


def check(a: Tensor, b: Tensor) -> None:
    """M × K and K × N, of one type and device, both contiguous."""
    for name, each in (("a", a), ("b", b)):
        checks.tensor("matmul", name, each)
        checks.matrix("matmul", name, each)
    checks.same_kind("matmul", a, b, "a and b")
    if a.shape[1] != b.shape[0]:
        shapes = f"{a.shape[0]} × {a.shape[1]} and {b.shape[0]} × {b.shape[1]}"
        raise InputError(f"matmul: a and b are {shapes}", "give M × K and K × N")
    if str(a.dtype).removeprefix("torch.") not in TOLERANCES:
        known = ", ".join(TOLERANCES)
        raise InputError(f"matmul: a and b have the type {a.dtype}", f"give one of {known}")


def bytes_moved(a: Tensor, b: Tensor) -> int:
    """(M·K + K·N + M·N) elements: each input read once, the result written once."""
    return (a.numel() + b.numel() + a.shape[0] * b.shape[1]) * a.element_size()


def flop(a: Tensor, b: Tensor) -> int:
    """2·M·N·K: a product and a sum for each of K pairs of each of M·N results."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


# Sums are kept in fp32: what is left is rounding the result to 11 bits or to 8. The interpreter
# rounds bfloat16 toward zero, so off by 2⁻⁷ at most.
TOLERANCES = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}

OPERATION = Operation(
    name="matmul",
    title="matrix product",
    inputs=inputs,
    reference=with_torch,
    versions=(
        Version("triton-naive", naive, "triton", "32 × 32 tiles", (naive_kernel,)),
        Version("triton-grouped", grouped, "triton", "large tiles", (grouped_kernel,)),
        Version("triton-autotuned", autotuned, "triton", "the fastest tile", (autotuned_kernel,)),
        Version(
            "triton-persistent",
            persistent,
            "triton",
            "one block per SM, TMA",
            (persistent_kernel,),
            supports=is_for_tma,
        ),
        Version("torch", with_torch, note="cuBLAS"),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1024, 2048, 4096, 8192),
    small_sizes=(1, 33, 64, 104, 160),
    tolerances=TOLERANCES,
    check=check,
    size_means="rows and columns",
    tensor_cores=True,
)
