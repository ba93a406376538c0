# ruff: noqa: N803 (constexprs are written in capitals)
"""Kernels for which several remedies help alone: advice must choose, and not make them worse."""

import triton
import triton.language as tl


@triton.jit
def grouped_gemm(
    a_ptr, b_ptr, c_ptr, ends_ptr, GROUPS, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Rows of A, group by group, times the B of their group; blocks take tiles in turn."""
    block, first, begin = tl.program_id(0), 0, 0
    for group in range(GROUPS):
        end = tl.load(ends_ptr + group)
        columns = tl.cdiv(N, BN)
        tiles = tl.cdiv(end - begin, BM) * columns
        for tile in range(block - first, tiles, BLOCKS):
            rows = begin + (tile // columns) * BM + tl.arange(0, BM)
            n = (tile % columns) * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), tl.float32)
            for start in range(0, K, BK):
                k = start + tl.arange(0, BK)
                a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=rows[:, None] < end)
                b = tl.load(b_ptr + group * K * N + k[:, None] * N + n[None, :])
                total = tl.dot(a, b, total)
            tl.store(c_ptr + rows[:, None] * N + n[None, :], total, mask=rows[:, None] < end)
        first = (first + tiles) % BLOCKS
        begin = end


@triton.jit
def dequantize(
    q_ptr, scale_ptr, y_ptr, K, N, GROUP: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Eight rows of int4 per 32-bit word, a scale for each group of rows and column."""
    words = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    q = tl.load(q_ptr + words[:, None] * N + n[None, :])
    for part in tl.static_range(8):
        rows = words * 8 + part
        scale = tl.load(scale_ptr + (rows // GROUP)[:, None] * N + n[None, :])
        y = ((q >> (4 * part)) & 15).to(tl.float32) - 8.0
        tl.store(y_ptr + rows[:, None] * N + n[None, :], y * scale)


@triton.jit
def pack_pairs(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Two neighbours per byte, loaded one by one: each load takes every other element."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low = tl.load(x_ptr + 2 * offsets, mask=offsets < n, other=0.0).to(tl.uint8)
    high = tl.load(x_ptr + 2 * offsets + 1, mask=offsets < n, other=0.0).to(tl.uint8)
    tl.store(y_ptr + offsets, low | (high << 4), mask=offsets < n)
