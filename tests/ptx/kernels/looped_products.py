"""Products in loops whose operands Triton pipelines or not."""

import triton
import triton.language as tl


@triton.jit
def plain(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def tested(a_ptr, b_ptr, c_ptr, keep_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        if tl.load(keep_ptr + start // BK):
            a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
            b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
            total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def listed(
    a_ptr, b_ptr, c_ptr, list_ptr, count, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr
):
    """What is advised in place of `tested`: a loop over the blocks to visit."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for at in range(count):
        start = tl.load(list_ptr + at) * BK
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def wrapped(a_ptr, b_ptr, c_ptr, K, size, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N) % size, tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def summed(x_ptr, y_ptr, count, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, count, BLOCK, num_stages=STAGES):
        total += tl.load(x_ptr + tl.program_id(0) * count + start + offsets)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + offsets, total)


@triton.jit
def summed_plainly(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * count + start + offsets)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + offsets, total)


@triton.jit
def scanned(x_ptr, y_ptr, steps, width, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    """A recurrence over time; STAGES=1 leaves it as Triton does, which pipelines nothing."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        state = state * 0.5 + tl.load(x_ptr + step * width + offsets).to(tl.float32)
        tl.store(y_ptr + step * width + offsets, state)


@triton.jit
def scanned_in_place(x_ptr, y_ptr, steps, width, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.load(y_ptr + offsets).to(tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        state = state * 0.5 + tl.load(x_ptr + step * width + offsets).to(tl.float32)
        tl.store(x_ptr + step * width + offsets, state)


@triton.jit
def recurrent(x_ptr, w_ptr, y_ptr, steps, STAGES: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """A recurrent network: of its products, what is loaded in each step is only added."""
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    weight = tl.load(w_ptr + n[:, None] * N + n[None, :])
    state = tl.zeros((M, N), tl.float16)
    for step in tl.range(0, steps, num_stages=STAGES):
        x = tl.load(x_ptr + step * M * N + at)
        state = tl.dot(state, weight, x.to(tl.float32)).to(tl.float16)
        tl.store(y_ptr + step * M * N + at, state)
