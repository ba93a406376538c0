"""Transpose a matrix: y[c, r] = x[r, c]. Nothing is computed; every element moves.

Either the reads are coalesced or the writes, never both: neighbours in x are a whole row apart in
y. The way out is a tile that is read along rows, transposed in shared memory, and written along
rows, so that both sides are coalesced.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks, cuda_cpp
from traceview.trials.bench.operation import Operation, Version

TILE_BYTES = 256
"""Of a tile's row: 64 elements of 4 bytes, 128 of 2."""
PIECE = 256
MOST_BLOCKS = 65_535
"""A grid has no more along its second axis."""

CUDA_TILE = r"""
extern "C" __global__ void transpose_tile(const float* x, float* y, int rows, int columns) {
    // 33 and not 32 columns: shared memory has 32 banks of 4 bytes, and a column of a tile 32 wide
    // lies in one of them. Its 32 elements would be fetched one after the other.
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (column < columns && row + i < rows)
            tile[threadIdx.y + i][threadIdx.x] = x[(long long)(row + i) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (column < rows && row + i < columns)
            y[(long long)(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
"""


def reference(x: Tensor) -> Tensor:
    """torch's own: .t() only swaps the strides, and .contiguous() moves the elements."""
    return x.t().contiguous()


@triton.jit
def transpose_strided_kernel(x, y, rows, columns, BLOCK: tl.constexpr = 256):
    # A piece of a row: read along memory, and written `rows` elements apart, a sector of 32 bytes
    # for each element. Only if blocks of neighbouring rows run at the same time can the L2 cache
    # fill up the sectors before they go to memory.
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + column, column < columns)
    tl.store(y + column * rows + row, v, column < columns)


def with_strides(x: Tensor) -> Tensor:
    """Triton, pieces of rows: coalesced reads, scattered writes."""
    rows, columns = x.shape
    y = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(columns, PIECE))
    transpose_strided_kernel[grid](x, y, rows, columns, BLOCK=PIECE, num_warps=2)
    return y


def cuda_tile(x: Tensor) -> Tensor:
    """CUDA C++, tiles of 32 × 32 through shared memory."""
    rows, columns = x.shape
    y = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(columns, 32), triton.cdiv(rows, 32), 1)
    cuda_cpp.kernel(CUDA_TILE, "transpose_tile")(grid, (32, 8, 1), (x, y, rows, columns))
    return y


@triton.jit
def transpose_tile_kernel(x, y, rows, columns, TILE: tl.constexpr = 64):
    # Written as if the tile were turned for nothing. Triton gives the loads a layout in which a
    # thread holds neighbours of a row of x, and the stores one in which it holds neighbours of a
    # row of y, and converts between the two through shared memory, swizzled against bank conflicts.
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], inside)
    turned = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(y + column[:, None] * rows + row[None, :], tl.trans(tile), turned)


def with_tile(x: Tensor) -> Tensor:
    """Triton, tiles through shared memory: reads and writes of 128 bits, both coalesced."""
    rows, columns = x.shape
    y = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
    tile = TILE_BYTES // x.element_size()
    grid = (triton.cdiv(rows, tile), triton.cdiv(columns, tile))
    transpose_tile_kernel[grid](x, y, rows, columns, TILE=tile, num_warps=8)
    return y


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """`size` rows and as many columns, and 3 more of these where the size is odd."""
    made = torch.Generator(device=device).manual_seed(0)
    shape = (size, size + 3 * (size % 2))
    if dtype.is_floating_point:
        x = torch.randn(shape, generator=made, device=device, dtype=torch.float32)
    else:
        x = torch.randint(-1000, 1001, shape, generator=made, device=device)
    return (x.to(dtype),)


def check(x: Tensor) -> None:
    """A contiguous matrix."""
    checks.tensor("transpose", "x", x)
    checks.matrix("transpose", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once and written once."""
    return 2 * x.numel() * x.element_size()


def flop(_: Tensor) -> int:
    """None."""
    return 0


def fits_in_pieces(x: Tensor) -> bool:
    """A row's pieces are the second axis of the grid."""
    return x.shape[1] <= MOST_BLOCKS * PIECE


def fits_in_tiles(x: Tensor) -> bool:
    """A row's tiles are the second axis of the grid."""
    return x.shape[1] <= MOST_BLOCKS * (TILE_BYTES // x.element_size())


def fits_in_cuda_tiles(x: Tensor) -> bool:
    """The CUDA C++ version is written for float, and a column's tiles are its second axis."""
    return x.dtype == torch.float32 and x.shape[0] <= MOST_BLOCKS * 32


OPERATION = Operation(
    name="transpose",
    title="Transpose of a matrix",
    inputs=inputs,
    reference=reference,
    versions=(
        Version(
            "triton-strided",
            with_strides,
            "triton",
            "coalesced reads, scattered writes",
            kernels=(transpose_strided_kernel,),
            supports=fits_in_pieces,
        ),
        Version("torch", reference, note="x.t().contiguous()"),
        Version(
            "cuda-tile",
            cuda_tile,
            "cuda",
            "32 × 32 through shared memory, 32 bits per thread",
            supports=fits_in_cuda_tiles,
            cuda_source=CUDA_TILE,
        ),
        Version(
            "triton-tile",
            with_tile,
            "triton",
            "tiles through shared memory, 128 bits per thread",
            kernels=(transpose_tile_kernel,),
            supports=fits_in_tiles,
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1024, 4096, 8192, 16384),
    small_sizes=(1, 33, 64, 130),
    tolerances={"float32": 0.0, "float16": 0.0, "bfloat16": 0.0, "int32": 0.0},
    check=check,
    size_means="rows and columns",
)
