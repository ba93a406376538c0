"""Kernels whose arithmetic or rows, not the width of an access, decide what they take."""

import triton
import triton.language as tl


@triton.jit
def iterated(x_ptr, y_ptr, size, DOUBLE: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < size)
    if DOUBLE:
        x = x.to(tl.float64)
    value = x
    for _ in tl.static_range(TIMES):
        value = value * x + x
    tl.store(y_ptr + offsets, value.to(tl.float32), mask=offsets < size)


@triton.jit
def by_row(x_ptr, y_ptr, D: tl.constexpr):
    at = tl.program_id(0) * D + tl.arange(0, D)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


@triton.jit
def by_rows(x_ptr, y_ptr, R: tl.constexpr, D: tl.constexpr):
    """What is advised in place of `by_row`."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(y_ptr + at, tl.load(x_ptr + at))


@triton.jit
def windows(x_ptr, y_ptr, width, columns, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows that start at each tap: a width that is a multiple of 16 aligns none of them."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tap = tl.program_id(1)
    row = offsets // columns + tap // TAPS
    x = tl.load(x_ptr + row * width + tap % TAPS + offsets % columns)
    tl.store(y_ptr + tap * columns * columns + offsets, x)


@triton.jit
def resampled(x_ptr, y_ptr, width, scale, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The nearest of other samples: their number is an argument, or SIZE where that is not 0."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    nearest = offsets * scale // SIZE if SIZE else offsets * scale // width
    tl.store(y_ptr + offsets, tl.load(x_ptr + nearest))
