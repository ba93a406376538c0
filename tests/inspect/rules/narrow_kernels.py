# ruff: noqa: N803 (constexprs are written in capitals)
"""Kernels that are narrow, each for one reason."""

import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, 0.5 * x * (1 + tl.erf(x * 0.70710678)), mask=mask)


@triton.jit
def summed(y_ptr, steps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        total += tl.exp(-tl.rand(1234, offsets * steps + step))
    tl.store(y_ptr + offsets, total)


@triton.jit
def strided(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride))


@triton.jit
def every_second(x_ptr, y_ptr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * STEP))


@triton.jit
def gather(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    tl.store(y_ptr + offsets, tl.load(x_ptr + index))


@triton.jit
def row_sums(x_ptr, y_ptr, stride, columns, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offsets, mask=offsets < columns, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, 0))


@triton.jit
def products(a_ptr, b_ptr, c_ptr, size, stride, BLOCK: tl.constexpr):
    m, n = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, size, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + m[:, None] * stride + k[None, :])
        b = tl.load(b_ptr + k[:, None] * BLOCK + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * BLOCK + n[None, :], total)


@triton.jit
def two_arrays(x_ptr, y_ptr, z_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets * STEP, mask=mask)
    tl.store(z_ptr + offsets, total, mask=mask)


@triton.jit
def tf32(a_ptr, b_ptr, c_ptr, size, BLOCK: tl.constexpr):
    m, n = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, size, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a, b = a_ptr + m[:, None] * 256 + k[None, :], b_ptr + k[:, None] * BLOCK + n[None, :]
        total = tl.dot(tl.load(a), tl.load(b), total)
    tl.store(c_ptr + m[:, None] * BLOCK + n[None, :], total)


@triton.jit
def _load(pointer, at, step):
    return tl.load(pointer + at * step)


@triton.jit
def through_helper(x_ptr, y_ptr, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, _load(x_ptr, offsets, step))


@triton.jit
def sampled(scores_ptr, seed_ptr, tokens_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.load(scores_ptr + offsets) * tl.load(seed_ptr).to(tl.int32)
    at = tl.argmax(total, 0)
    tl.store(out_ptr, tl.load(tokens_ptr + at))


@triton.jit
def multiplied(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        a = tl.load(a_ptr + m[:, None] * n + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * BLOCK + m[None, :])
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(c_ptr + m[:, None] * BLOCK + m[None, :], total)


@triton.jit
def repeated(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets // n, tl.load(x_ptr + offsets))


@triton.jit
def shifted(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for j in range(n):
        total += tl.load(x_ptr + offsets + j)
    tl.store(y_ptr + offsets, total)


@triton.jit
def wrapped_start(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    start, offsets = tl.program_id(0) * BLOCK % size, tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + offsets, tl.load(x_ptr + start + offsets))


@triton.jit
def clamped_start(x_ptr, y_ptr, last, BLOCK: tl.constexpr):
    start, offsets = tl.minimum(tl.program_id(0) * BLOCK, last), tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + offsets, tl.load(x_ptr + start + offsets))


@triton.jit
def scaled_groups(x_ptr, scale_ptr, y_ptr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for group in range(GROUPS):
        scale = tl.load(scale_ptr + rows * GROUPS + group)
        total += scale * tl.load(x_ptr + group * BLOCK + rows)
    tl.store(y_ptr + rows, total)


@triton.jit
def every_third(x_ptr, y_ptr, TILE: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * 3 + tl.arange(0, TILE)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def from_a_list(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    block, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    start = tl.load(starts_ptr + block)
    tl.store(y_ptr + block * BLOCK + offsets, tl.load(x_ptr + start + offsets))


@triton.jit
def listed_run(x_ptr, starts_ptr, ends_ptr, y_ptr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    start = tl.load(starts_ptr)
    end = tl.load(ends_ptr)
    if WIDE > 0:
        start = tl.multiple_of(start, 16)
    if WIDE > 1:
        end = tl.multiple_of(end, 16)
    x = tl.load(x_ptr + start + offsets, mask=offsets < end)
    tl.store(y_ptr + offsets, x)


@triton.jit
def masked_strided(x_ptr, y_ptr, n, stride: tl.int64, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * stride, mask=offsets < n)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), x)


@triton.jit
def taps(x_ptr, y_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(y_ptr + k, tl.load(x_ptr + k // WIDTH * 1024 + k % WIDTH))


@triton.jit
def rows_at(x_ptr, index_ptr, y_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Copies rows: where a load begins is loaded, where a store does follows from the program."""
    row = tl.program_id(0)
    source = tl.load(index_ptr + row)
    for part in tl.static_range(COLUMNS // BLOCK):
        columns = part * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + source * COLUMNS + columns)
        tl.store(y_ptr + row * COLUMNS + columns, x)


@triton.jit
def upcast(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr, SCALE: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        a = tl.load(a_ptr + m[:, None] * n + start + k[None, :]).to(tl.float32)
        b = tl.load(b_ptr + m[:, None] * n + start + k[None, :]).to(tl.float32)
        if SCALE != 1:
            a *= SCALE
        total = tl.dot(a, tl.trans(b), total)
    tl.store(c_ptr + m[:, None] * BLOCK + m[None, :], total)


@triton.jit
def values(s_ptr, v_ptr, o_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr, EXP: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        s = tl.load(s_ptr + m[:, None] * n + start + k[None, :])
        p = tl.exp(s) if EXP else s + 1
        if MASKED:
            p = tl.where(m[:, None] >= start + k[None, :], p, 0.0)
        v = tl.load(v_ptr + (start + m[:, None]) * BLOCK + k[None, :]).to(tl.float32)
        total = tl.dot(p, v, total)
    tl.store(o_ptr + m[:, None] * BLOCK + m[None, :], total)


@triton.jit
def exact_values(s_ptr, v_ptr, o_ptr, n, BLOCK: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        p = tl.exp(tl.load(s_ptr + m[:, None] * n + start + k[None, :]))
        v = tl.load(v_ptr + (start + m[:, None]) * BLOCK + k[None, :]).to(tl.float32)
        total = tl.dot(p, v, total, input_precision="ieee")
    tl.store(o_ptr + m[:, None] * BLOCK + m[None, :], total)


@triton.jit
def quaternion_norm(q_ptr, y_ptr, n):
    at = tl.program_id(0)
    if at < n:
        w, x = tl.load(q_ptr + at * 4), tl.load(q_ptr + at * 4 + 1)
        tl.store(y_ptr + at, tl.sqrt(w * w + x * x))


@triton.jit
def quantized(x_ptr, y_ptr, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, (x * scale).to(tl.int8), mask=offsets < n)


@triton.jit
def copy(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(y_ptr.dtype.element_ty))


@triton.jit
def masked_by(x_ptr, mask_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(mask_ptr + offsets) > 0
    tl.store(y_ptr + offsets, tl.where(keep, tl.load(x_ptr + offsets), 0.0))


@triton.jit
def of_neighbours(x_ptr, w_ptr, near_ptr, y_ptr, count, steps, BLOCK: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for at in range(count * steps):
        neighbour, start = at // steps, at % steps * BLOCK
        rows = tl.load(near_ptr + m * count + neighbour).to(tl.int64)
        x = tl.load(x_ptr + rows[:, None] * 256 + start + k[None, :])
        w = tl.load(w_ptr + (neighbour * 256 + start + k[:, None]) * BLOCK + n[None, :])
        total = tl.dot(x, w, total)
    tl.store(y_ptr + m[:, None] * BLOCK + n[None, :], total)
