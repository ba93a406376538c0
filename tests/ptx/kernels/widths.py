"""Kernels for the rules by which Triton chooses the width of an access, one a rule."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    wide = x.to(tl.float32)
    tl.store(y_ptr + offsets, 0.5 * wide * (1 + tl.erf(wide * 0.70710678)), mask=mask)


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def shifted(x_ptr, y_ptr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets + SHIFT))


@triton.jit
def strided(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride))


@triton.jit
def gather(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    tl.store(y_ptr + offsets, tl.load(x_ptr + index))


@triton.jit
def gather_of_runs(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    """The program promises that indices come in runs of eight that begin at multiples of eight."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    index = tl.max_contiguous(tl.multiple_of(index, 8), 8)
    tl.store(y_ptr + offsets, tl.load(x_ptr + index))


@triton.jit
def softmax(y_ptr, x_ptr, stride, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = tl.arange(0, BLOCK)
    places = rows[:, None] * stride + inside[None, :]
    mask = inside[None, :] < columns
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    shares = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(y_ptr + places, shares / tl.sum(shares, 1)[:, None], mask=mask)


@triton.jit
def first_two_of_four(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    fours = tl.reshape(tl.load(x_ptr + offsets, mask=offsets < n), (BLOCK // 4, 2, 2))
    first, _ = tl.split(tl.permute(fours, (0, 2, 1)))
    tl.store(y_ptr + tl.arange(0, BLOCK // 2), tl.reshape(first, (BLOCK // 2,)))


@triton.jit
def every_other(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    pairs = tl.reshape(tl.load(x_ptr + offsets, mask=offsets < n), (BLOCK // 2, 2))
    even, _ = tl.split(pairs)
    tl.store(y_ptr + tl.arange(0, BLOCK // 2), even)


@triton.jit
def four_scalars(x_ptr, y_ptr):
    a, b = tl.load(x_ptr), tl.load(x_ptr + 1)
    c, d = tl.load(x_ptr + 2), tl.load(x_ptr + 3)
    tl.store(y_ptr, a + b + c + d)


@triton.jit
def products(a_ptr, b_ptr, c_ptr, depth, a_stride, b_stride, TILE: tl.constexpr):
    rows, columns, inner = tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, depth, TILE):
        a = tl.load(a_ptr + rows[:, None] * a_stride + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * b_stride + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * TILE + columns[None, :], total)


@triton.jit
def transpose(x_ptr, y_ptr, x_stride, y_stride, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :])
    tl.store(y_ptr + columns[:, None] * y_stride + rows[None, :], tl.trans(x))


@gluon.jit
def eight_side_by_side(x_ptr, y_ptr, n, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """A layout of one's own, in which a thread has eight neighbours."""
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=LAYOUT)
    mask = offsets < n
    gl.store(y_ptr + offsets, gl.load(x_ptr + offsets, mask=mask), mask=mask)
