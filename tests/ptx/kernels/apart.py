"""Kernels whose accesses are narrow for what their addresses or masks are, and the same mended.

A kernel that ends in `_mended` computes what its namesake does, as the tool's remedy has it.
"""

import triton
import triton.language as tl


@triton.jit
def magnitudes(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Of complex numbers: real and imaginary parts alternate."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = tl.load(x_ptr + 2 * offsets, mask=offsets < n)
    imaginary = tl.load(x_ptr + 2 * offsets + 1, mask=offsets < n)
    tl.store(y_ptr + offsets, real * real + imaginary * imaginary, mask=offsets < n)


@triton.jit
def magnitudes_mended(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    pairs = tl.reshape(tl.load(x_ptr + both, mask=both < 2 * n), (BLOCK, 2))
    real, imaginary = tl.split(pairs)
    tl.store(y_ptr + offsets, real * real + imaginary * imaginary, mask=offsets < n)


@triton.jit
def interleave(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + 2 * offsets, tl.load(x_ptr + offsets))
    tl.store(z_ptr + 2 * offsets + 1, tl.load(y_ptr + offsets))


@triton.jit
def interleave_mended(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    pairs = tl.join(tl.load(x_ptr + offsets), tl.load(y_ptr + offsets))
    tl.store(z_ptr + both, tl.reshape(pairs, (2 * BLOCK,)))


@triton.jit
def gray(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    red, green = tl.load(x_ptr + 3 * offsets), tl.load(x_ptr + 3 * offsets + 1)
    tl.store(y_ptr + offsets, red + green + tl.load(x_ptr + 3 * offsets + 2))


@triton.jit
def backwards(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + n - 1 - offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def backwards_mended(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    runs = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    inside, inner = (4 * runs < n)[:, None], tl.arange(0, 4)[None, :]
    tile = tl.load(x_ptr + (n - 4 - 4 * runs)[:, None] + inner, mask=inside)
    tl.store(y_ptr + (4 * runs)[:, None] + inner, tl.flip(tile, 1), mask=inside)


@triton.jit
def rotary(q_ptr, out_ptr, stride_s, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Pairs lie side by side; where rows begin, an argument tells."""
    rows, pairs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, HALF)
    even = tl.load(q_ptr + rows[:, None] * stride_s + 2 * pairs[None, :])
    tl.store(out_ptr + rows[:, None] * HALF + pairs[None, :], even)


@triton.jit
def scale_channels(x_ptr, s_ptr, y_ptr, HW, BLOCK: tl.constexpr):
    """HW is no stride but what offsets are divided by."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) * tl.load(s_ptr + offsets // HW))


@triton.jit
def scale_channels_mended(x_ptr, s_ptr, y_ptr, HW, BLOCK: tl.constexpr):
    scale = tl.load(s_ptr + tl.program_id(0))
    for start in range(0, HW, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        offsets = tl.program_id(0) * HW + inside
        x = tl.load(x_ptr + offsets, mask=inside < HW)
        tl.store(y_ptr + offsets, x * scale, mask=inside < HW)


@triton.jit
def sum_column(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + rows * N + tl.program_id(0), mask=rows < M, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def causal(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns <= row, other=0.0)
    tl.store(y_ptr + row * N + columns, x, mask=columns < N)


@triton.jit
def causal_mended(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
    tl.store(y_ptr + row * N + columns, tl.where(columns <= row, x, 0.0), mask=columns < N)


@triton.jit
def causal_store(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N)
    tl.store(y_ptr + row * N + columns, x, mask=columns <= row)


@triton.jit
def of_length(x_ptr, lengths_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < tl.load(lengths_ptr + row), other=0.0)
    tl.store(y_ptr + row * N + columns, x, mask=columns < N)


@triton.jit
def keep_some(x_ptr, keep_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(keep_ptr + offsets, mask=offsets < n)
    x = tl.load(x_ptr + offsets, mask=(offsets < n) & keep, other=0.0)
    tl.store(y_ptr + offsets, x, mask=offsets < n)


@triton.jit
def sequences(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    start = tl.load(starts_ptr + row)
    tl.store(y_ptr + row * BLOCK + columns, tl.load(x_ptr + start + columns))


@triton.jit
def sequences_mended(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    start = tl.multiple_of(tl.load(starts_ptr + row), 16)
    tl.store(y_ptr + row * BLOCK + columns, tl.load(x_ptr + start + columns))


@triton.jit
def shifted(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets + 1))


@triton.jit
def copy_heads(x_ptr, y_ptr, D: tl.constexpr):
    """D is both the block and the distance of rows: it cannot be chosen."""
    offsets = tl.program_id(0) * D + tl.arange(0, D)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def sum_rows(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    """A block takes one row: a larger tile has nothing more to take."""
    x = tl.load(x_ptr + tl.program_id(0) * stride + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, 0))


@triton.jit
def rotate_halves(q_ptr, cos_ptr, stride, HEADS: tl.constexpr, HD: tl.constexpr):
    """Fewer warps widen q, of all heads, and narrow the cosines, which all heads share."""
    heads, inner = tl.arange(0, HEADS), tl.arange(0, HD // 2)
    places = q_ptr + tl.program_id(0) * stride + heads[:, None] * HD + inner[None, :]
    cos = tl.load(cos_ptr + tl.program_id(0) * (HD // 2) + inner)[None, :]
    tl.store(places, tl.load(places) * cos)


@triton.jit
def add_locked(x_ptr, y_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    """The lock spins in a loop; what it guards stands in none."""
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offsets, mask=offsets < n)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(y_ptr + offsets, tl.load(y_ptr + offsets, mask=offsets < n) + x, mask=offsets < n)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def row_of_many(x_ptr, y_ptr, rows, columns, pitch, BLOCK: tl.constexpr):
    """The number of rows is in the address, too, but changes nothing."""
    row, inner = tl.program_id(0) % rows, tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * pitch + inner, mask=inner < columns)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + inner, x)
