"""The sum of every row of a matrix: a reduction along the axis in which memory runs.

Neighbouring threads read neighbouring columns, which is coalesced by itself. What remains to choose
is how many threads share a row: too many, and they spend their time on exchanging sums; too few,
and too little is on its way from memory. Compare column_sum, where the axis is the other one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.compiled import compiled
from kernels.row_tile import row_tile
from kernels.sum import sum_type
from traceview.trials.bench.operation import Operation, Version

WIDEST = 8192
LOOP_BLOCK = 1024


def with_torch(x: Tensor) -> Tensor:
    """torch's own."""
    return torch.sum(x, dim=1, dtype=sum_type(x))


_compiled = compiled(with_torch)


def with_compile(x: Tensor) -> Tensor:
    """torch.compile generates a kernel like the one below."""
    result: Tensor = _compiled(x)
    return result


@triton.jit
def row_sum_loop_kernel(x, y, columns, BLOCK: tl.constexpr = 1024):
    # A block for a row, whatever its length. Rows of 256 columns leave three quarters of every
    # load masked out; long rows are walked, and only the lanes' own sums are kept.
    row = tl.program_id(0).to(tl.int64) * columns
    sums = tl.zeros((BLOCK,), y.dtype.element_ty)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + column, column < columns, other=0)
        sums += v.to(y.dtype.element_ty)
    tl.store(y + tl.program_id(0), tl.sum(sums, axis=0))


def with_loop(x: Tensor) -> Tensor:
    """Triton, one block per row, 1024 columns at a time."""
    y = torch.empty(x.shape[0], dtype=sum_type(x), device=x.device)
    row_sum_loop_kernel[(x.shape[0],)](x, y, x.shape[1], LOOP_BLOCK, num_warps=4)
    return y


@triton.jit
def row_sum_tile_kernel(x, y, rows, columns, ROWS: tl.constexpr = 1, BLOCK: tl.constexpr = 4096):
    # As many rows as it takes to give every thread 32 elements: all of its loads are in flight
    # before the first sum is made, and the rows' sums are exchanged together.
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((ROWS, BLOCK), y.dtype.element_ty)
    for start in range(0, columns, BLOCK):
        inside = (row[:, None] < rows) & (start + column < columns)
        v = tl.load(x + row[:, None] * columns + start + column, inside, other=0)
        sums += v.to(y.dtype.element_ty)
    tl.store(y + row, tl.sum(sums, axis=1), row < rows)


def with_tile(x: Tensor) -> Tensor:
    """Triton, as many rows per block as fill it."""
    rows, columns = x.shape
    y = torch.empty(rows, dtype=sum_type(x), device=x.device)
    tile = row_tile(min(columns, WIDEST))
    grid = (triton.cdiv(rows, tile.rows),)
    row_sum_tile_kernel[grid](x, y, rows, columns, tile.rows, tile.block, num_warps=tile.warps)
    return y


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """`size` columns; on a GPU 2²⁶ elements, but 4096 rows at least, and on a CPU 37 rows."""
    rows = max(4096, (1 << 26) // size) if device.startswith("cuda") else 37
    made = torch.Generator(device=device).manual_seed(0)
    if dtype.is_floating_point:
        return (torch.rand(rows, size, generator=made, device=device).to(dtype),)
    return (torch.randint(0, 1000, (rows, size), generator=made, device=device).to(dtype),)


def check(x: Tensor) -> None:
    """A contiguous matrix."""
    checks.tensor("row_sum", "x", x)
    checks.matrix("row_sum", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once, and a sum is written for each row, of 4 bytes or 8."""
    return x.numel() * x.element_size() + x.shape[0] * sum_type(x).itemsize


def flop(x: Tensor) -> int:
    """In each row one addition fewer than it has elements."""
    return x.numel() - x.shape[0]


OPERATION = Operation(
    name="row_sum",
    title="Sum of every row (axis 1)",
    inputs=inputs,
    reference=with_torch,
    versions=(
        Version("torch", with_torch, note="torch.sum, dim=1"),
        Version("torch.compile", with_compile, note="generated"),
        Version(
            "triton-loop",
            with_loop,
            "triton",
            "one block per row, 1024 columns at a time",
            kernels=(row_sum_loop_kernel,),
        ),
        Version(
            "triton-tile",
            with_tile,
            "triton",
            "as many rows per block as fill it",
            kernels=(row_sum_tile_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(256, 1024, 4096, 16384),
    small_sizes=(1, 97, 1024, 5000),
    tolerances={"float32": 1e-5, "float16": 1e-5, "bfloat16": 1e-5, "int32": 0.0, "int64": 0.0},
    check=check,
    size_means="columns",
)
