"""Softmax of every row of a matrix: y = exp(x − m) / Σ exp(x − m), where m is the row's maximum.

Without the maximum, exp(89) would already be infinite in float32. So softmax takes three passes
over a row: for the maximum, the sum and the quotients. If the row stays in registers between them,
memory sees one read and one write; if not, up to three reads and a write; and if every operation
is a kernel of its own, eight reads and writes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks, cuda_cpp
from kernels.compiled import compiled
from kernels.row_tile import row_tile
from traceview.trials.bench.operation import Operation, Version

MOST_COLUMNS = 16384
"""As many elements fit in the registers of one block: 16 warps with 32 elements per thread."""
ONLINE_BLOCK, ONLINE_WARPS = 4096, 8

CUDA_ROW_PER_THREAD = r"""
extern "C" __global__ void softmax_row_per_thread(const float* x, float* y, int rows, int columns) {
    // The obvious way to write it: one thread per row, and in it the three loops. Neighbouring
    // threads are a whole row apart: each load of a warp touches 32 sectors of 32 bytes to use 4
    // bytes of each. What the other 28 bytes hold is wanted by later loads, when it is long gone
    // from the cache.
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += (long long)row * columns;
    y += (long long)row * columns;
    float most = __int_as_float(0xff800000), sum = 0.0f;  // −∞
    for (int c = 0; c < columns; c++) most = fmaxf(most, x[c]);
    for (int c = 0; c < columns; c++) sum += __expf(x[c] - most);
    for (int c = 0; c < columns; c++) y[c] = __expf(x[c] - most) / sum;
}
"""


def manual(x: Tensor) -> Tensor:
    """Five kernels, eight reads or writes: all but maximum and sum read and write a matrix."""
    shifted = x - x.amax(dim=1, keepdim=True)
    powers = torch.exp(shifted)
    return powers / powers.sum(dim=1, keepdim=True)


def with_torch(x: Tensor) -> Tensor:
    """torch's own: one of several kernels, by the row's length.

    Rows of 4096 stayed in registers (`cunn_SoftMaxForwardReg`, torch 2.11 on an H200).
    """
    return torch.softmax(x, dim=1)


_compiled = compiled(manual)


def with_compile(x: Tensor) -> Tensor:
    """The manual formula, fused into one kernel by torch.compile."""
    result: Tensor = _compiled(x)
    return result


def cuda_row_per_thread(x: Tensor) -> Tensor:
    """CUDA C++, one row per thread: nothing is coalesced."""
    y = torch.empty_like(x)
    rows, columns = x.shape
    run = cuda_cpp.kernel(CUDA_ROW_PER_THREAD, "softmax_row_per_thread")
    run((triton.cdiv(rows, 64), 1, 1), (64, 1, 1), (x, y, rows, columns))
    return y


@triton.jit
def softmax_kernel(x, y, rows, columns, ROWS: tl.constexpr = 1, BLOCK: tl.constexpr = 4096):
    # A tile of ROWS whole rows, read once and held in registers until it is written.
    # Where the last tile reaches beyond the matrix it does the last row again.
    row = tl.minimum(tl.program_id(0) * ROWS + tl.arange(0, ROWS), rows - 1)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = row * columns + column
    inside = column < columns
    # −∞ changes neither a maximum nor a sum of powers. The sums are made in float32 whatever the
    # type. Nobody reads the result soon: a streaming store (.cs) lets it leave the cache first.
    v = tl.load(x + place, inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(v - tl.max(v, axis=1)[:, None])
    # One division per row and one product per element: divisions cost several instructions.
    share = 1.0 / tl.sum(powers, axis=1)
    tl.store(y + place, powers * share[:, None], inside, cache_modifier=".cs")


def with_triton(x: Tensor) -> Tensor:
    """Triton: whole rows in registers; one read, one write."""
    y = torch.empty_like(x)
    rows, columns = x.shape
    tile = row_tile(columns)
    grid = (triton.cdiv(rows, tile.rows),)
    softmax_kernel[grid](
        x, y, rows, columns, ROWS=tile.rows, BLOCK=tile.block, num_warps=tile.warps
    )
    return y


@triton.jit
def softmax_online_kernel(x, y, columns, BLOCK: tl.constexpr = 4096):
    # A row of any length, BLOCK columns at a time, in two passes instead of three: the maximum and
    # the sum are found together. Whenever a lane meets a new maximum, the sum that it has so far
    # was made with a wrong one, and is put right by a factor:
    # Σ exp(x − m) = Σ exp(x − m′) · exp(m′ − m).
    # Every lane keeps a maximum and a sum of its own, so nothing is exchanged inside the loop.
    row = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + column < columns
        # To be read again: it shall stay in the L2 cache.
        v = tl.load(x + row + start + column, inside, -float("inf"), eviction_policy="evict_last")
        v = v.to(tl.float32)
        newest = tl.maximum(most, v)
        # As long as a lane has met nothing but −∞, −∞ − (−∞) would make it NaN.
        finite = tl.where(newest == -float("inf"), 0.0, newest)
        total = total * tl.exp(most - finite) + tl.exp(v - finite)
        most = newest
    row_most = tl.max(most, axis=0)
    finite = tl.where(row_most == -float("inf"), 0.0, row_most)
    share = 1.0 / tl.sum(total * tl.exp(most - finite), axis=0)
    # The second pass goes backwards: what was read last is the likeliest to be in the cache.
    last = (columns - 1) // BLOCK * BLOCK
    for back in range(0, columns, BLOCK):
        place = last - back + column
        inside = place < columns
        v = tl.load(x + row + place, inside, eviction_policy="evict_first").to(tl.float32)
        tl.store(y + row + place, tl.exp(v - row_most) * share, inside)


def with_online(x: Tensor) -> Tensor:
    """Triton, for rows of any length: two reads, the second from the L2 cache, and one write."""
    y = torch.empty_like(x)
    rows, columns = x.shape
    block = min(ONLINE_BLOCK, max(triton.next_power_of_2(columns), 16))
    softmax_online_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=ONLINE_WARPS)
    return y


def inputs(size: int, dtype: Any, device: str, rows: int | None = None) -> tuple[Tensor]:
    """`size` columns; on a GPU 2²⁶ elements, but 4096 rows at least, and on a CPU 37 rows."""
    usual = max(4096, (1 << 26) // size) if device.startswith("cuda") else 37
    made = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(rows or usual, size, generator=made, device=device, dtype=torch.float32)
    return (x.to(dtype),)


def check(x: Tensor) -> None:
    """A contiguous matrix of floating-point numbers: row r begins at element r · columns."""
    checks.tensor("softmax", "x", x)
    checks.floating("softmax", "x", x)
    checks.matrix("softmax", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once and written once."""
    return 2 * x.numel() * x.element_size()


def flop(x: Tensor) -> int:
    """Five operations per element: comparison, difference, exponential, sum, quotient."""
    return 5 * x.numel()


def is_float32(x: Tensor) -> bool:
    """The CUDA C++ version takes float32 only."""
    return x.dtype == torch.float32


def fits_a_block(x: Tensor) -> bool:
    """Whether a row fits in the registers of a block."""
    return x.shape[1] <= MOST_COLUMNS


OPERATION = Operation(
    name="softmax",
    title="Softmax of rows",
    inputs=inputs,
    reference=manual,
    versions=(
        Version("manual", manual, note="max, difference, exp, sum, quotient"),
        Version(
            "cuda-row-per-thread",
            cuda_row_per_thread,
            "cuda",
            "nothing coalesced",
            supports=is_float32,
            cuda_source=CUDA_ROW_PER_THREAD,
        ),
        Version("torch", with_torch, note="torch.softmax"),
        Version("torch.compile", with_compile, note="the manual formula, fused"),
        Version(
            "triton-online",
            with_online,
            "triton",
            "rows of any length, in blocks",
            kernels=(softmax_online_kernel,),
        ),
        Version(
            "triton",
            with_triton,
            "triton",
            "whole rows in registers",
            kernels=(softmax_kernel,),
            supports=fits_a_block,
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(256, 1024, 4096, 16384, 65536),
    small_sizes=(1, 97, 1024, 5000),
    # One thread that adds a row of 16,384 numbers one by one rounds as often.
    tolerances={"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2},
    check=check,
    size_means="columns",
)
