"""The sum of every column of a matrix: a reduction across the axis in which memory runs.

A block that walks down one column reads one element of every row: 4 bytes used of each 32 that
memory moves. Blocks of many columns read rows side by side, which is coalesced; but there are few
such blocks, a matrix of 4096 columns gives 32 of them for 132 SMs. So the rows are
split, too, and the parts meet by atomic additions, or in a second pass. It is what the gradient of
a bias and that of a layer norm's weights need.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.compiled import compiled
from kernels.sum import sum_type
from traceview.trials.bench.operation import Operation, Version

ROWS, COLUMNS = 16, 128
PARTS, PART_COLUMNS = 128, 32
"""The tile of the second pass: the parts of a column are few, and wanted at once."""
PROGRAMS = 1024
"""Blocks wanted in all, several for each SM."""


def with_torch(x: Tensor) -> Tensor:
    """torch's own: it splits the rows, too, and sums the parts in the same launch."""
    return torch.sum(x, dim=0, dtype=sum_type(x))


_compiled = compiled(with_torch)


def with_compile(x: Tensor) -> Tensor:
    """torch.compile splits the rows and makes two kernels."""
    result: Tensor = _compiled(x)
    return result


@triton.jit
def column_sum_strided_kernel(x, y, rows, columns, BLOCK: tl.constexpr = 1024):
    # A block for a column: neighbouring threads read neighbouring rows, `columns` elements apart.
    # Each of them costs a sector of 32 bytes, and what else is in it is not for this block.
    column = tl.program_id(0)
    sums = tl.zeros((BLOCK,), y.dtype.element_ty)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        sums += tl.load(x + row * columns + column, row < rows, other=0).to(y.dtype.element_ty)
    tl.store(y + column, tl.sum(sums, axis=0))


def with_strides(x: Tensor) -> Tensor:
    """Triton, one block per column: up to eight times the traffic."""
    rows, columns = x.shape
    y = torch.empty(columns, dtype=sum_type(x), device=x.device)
    column_sum_strided_kernel[(columns,)](x, y, rows, columns, BLOCK=1024, num_warps=4)
    return y


@triton.jit
def column_part(x, rows, columns, share, sum_type, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The columns of this block, and their sums over the rows that are its share."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, rows)
    sums = tl.zeros((ROWS, COLUMNS), sum_type)
    # 16 rows × 128 columns at a time: a warp reads whole rows of 512 bytes, and every lane adds up
    # what is its own. The 16 rows meet once, at the end.
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < last) & (column[None, :] < columns)
        sums += tl.load(x + row * columns + column[None, :], inside, other=0).to(sum_type)
    return column, tl.sum(sums, axis=0)


@triton.jit
def column_sum_atomic_kernel(
    x, y, rows, columns, share, ROWS: tl.constexpr = 16, COLUMNS: tl.constexpr = 128
):
    column, sums = column_part(x, rows, columns, share, y.dtype.element_ty, ROWS, COLUMNS)
    tl.atomic_add(y + column, sums, column < columns, sem="relaxed")


@triton.jit
def column_sum_parts_kernel(
    x, parts, rows, columns, share, ROWS: tl.constexpr = 16, COLUMNS: tl.constexpr = 128
):
    column, sums = column_part(x, rows, columns, share, parts.dtype.element_ty, ROWS, COLUMNS)
    tl.store(parts + tl.program_id(1) * columns + column, sums, column < columns)


def rows_a_block(rows: int, columns: int) -> int:
    """How many rows a block sums up, so that there are some thousand blocks; 64 at least."""
    splits = max(1, PROGRAMS // triton.cdiv(columns, COLUMNS))
    share: int = triton.cdiv(triton.cdiv(rows, splits), ROWS) * ROWS
    return max(4 * ROWS, share)


def with_atomics(x: Tensor) -> Tensor:
    """Triton, tiles of 16 × 128; the parts meet by atomic additions, in any order."""
    rows, columns = x.shape
    share = rows_a_block(rows, columns)
    y = torch.zeros(columns, dtype=sum_type(x), device=x.device)
    grid = (triton.cdiv(columns, COLUMNS), triton.cdiv(rows, share))
    column_sum_atomic_kernel[grid](x, y, rows, columns, share, ROWS, COLUMNS, num_warps=4)
    return y


def with_two_passes(x: Tensor) -> Tensor:
    """Triton, the same tiles; the parts are a matrix, whose columns the same kernel sums up."""
    rows, columns = x.shape
    share = rows_a_block(rows, columns)
    splits = triton.cdiv(rows, share)
    parts = torch.empty(splits, columns, dtype=sum_type(x), device=x.device)
    column_sum_parts_kernel[(triton.cdiv(columns, COLUMNS), splits)](
        x, parts, rows, columns, share, ROWS, COLUMNS, num_warps=4
    )
    y = torch.empty(columns, dtype=parts.dtype, device=x.device)
    column_sum_parts_kernel[(triton.cdiv(columns, PART_COLUMNS), 1)](
        parts, y, splits, columns, splits, PARTS, PART_COLUMNS, num_warps=4
    )
    return y


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """`size` columns; on a GPU 2²⁶ elements, but 4096 rows at least, and on a CPU 137 rows."""
    rows = max(4096, (1 << 26) // size) if device.startswith("cuda") else 137
    made = torch.Generator(device=device).manual_seed(0)
    if dtype.is_floating_point:
        return (torch.rand(rows, size, generator=made, device=device).to(dtype),)
    return (torch.randint(0, 1000, (rows, size), generator=made, device=device).to(dtype),)


def check(x: Tensor) -> None:
    """A contiguous matrix."""
    checks.tensor("column_sum", "x", x)
    checks.matrix("column_sum", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once, and a sum is written for each column, of 4 bytes or 8."""
    return x.numel() * x.element_size() + x.shape[1] * sum_type(x).itemsize


def flop(x: Tensor) -> int:
    """In each column one addition fewer than it has elements."""
    return x.numel() - x.shape[1]


OPERATION = Operation(
    name="column_sum",
    title="Sum of every column (axis 0)",
    inputs=inputs,
    reference=with_torch,
    versions=(
        Version(
            "triton-strided",
            with_strides,
            "triton",
            "one block per column, nothing coalesced",
            kernels=(column_sum_strided_kernel,),
        ),
        Version("torch", with_torch, note="torch.sum, dim=0"),
        Version("torch.compile", with_compile, note="generated"),
        Version(
            "triton-atomic",
            with_atomics,
            "triton",
            "coalesced tiles, atomic additions",
            kernels=(column_sum_atomic_kernel,),
        ),
        Version(
            "triton-two-pass",
            with_two_passes,
            "triton",
            "coalesced tiles, then the sum of the parts",
            kernels=(column_sum_parts_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(256, 1024, 4096, 16384),
    small_sizes=(1, 33, 64, 130),
    tolerances={"float32": 1e-5, "float16": 1e-5, "bfloat16": 1e-5, "int32": 0.0, "int64": 0.0},
    check=check,
    size_means="columns",
)
