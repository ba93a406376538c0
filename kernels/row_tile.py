"""How many threads, and how many rows at once, for kernels that work on a matrix row by row."""

from __future__ import annotations

from dataclasses import dataclass

import triton

ELEMENTS_PER_THREAD = 32
WARP = 32
MOST_WARPS = 16


@dataclass(frozen=True)
class RowTile:
    """A block's share: `rows` rows of `block` columns each, a power of two, for `warps` warps."""

    rows: int
    block: int
    warps: int


def row_tile(columns: int) -> RowTile:
    """The tile for rows of so many columns, held whole in registers.

    A GPU reaches its bandwidth only with enough bytes in flight: latency × bandwidth, some 25 to
    35 kB for each SM of an H200. 32 elements per thread are eight loads of 128 bits, all
    issued before the first is needed. As long as a row fits into one warp (1024 columns) a block is
    one warp: lanes exchange their maxima and sums by shuffles, and nobody waits at a barrier. Rows
    shorter than that share a warp, for otherwise most of its lanes would have nothing to load.
    """
    block = max(triton.next_power_of_2(columns), 16)
    rows = max(1, WARP * ELEMENTS_PER_THREAD // block)
    warps = min(MOST_WARPS, max(1, block // (WARP * ELEMENTS_PER_THREAD)))
    return RowTile(min(rows, 16), block, warps)
