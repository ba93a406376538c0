# ruff: noqa: N803 (constexprs are written in capitals)
"""Kernels that ask too much of a thread, of an SM, or of an atomic; each for one reason."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + offsets, mask=offsets < columns, other=-1e30)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + offsets, e / tl.sum(e, 0), mask=offsets < columns)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def front_half(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Of four neighbours the first two are kept."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    front, _back = tl.split(tl.permute(tl.reshape(x, (BLOCK // 4, 2, 2)), (0, 2, 1)))
    pairs = tl.arange(0, BLOCK // 4)[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(y_ptr + tl.program_id(0) * (BLOCK // 2) + pairs, front)


@triton.jit
def scatter_add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.atomic_add(y_ptr + offsets, x, mask=offsets < n)


@triton.jit
def relaxed_add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.atomic_add(y_ptr + offsets, x, mask=offsets < n, sem="relaxed")


@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.atomic_add(y_ptr, tl.sum(x, 0), sem="relaxed")


@triton.jit
def ticket(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    number = tl.atomic_add(y_ptr, 1, scope="sys")
    tl.store(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), number)


@triton.jit
def waves(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    y = tl.sin(x)
    tl.store(y_ptr + offsets, y)


@triton.jit
def fast_waves(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, libdevice.fast_sinf(tl.load(x_ptr + offsets)))


@triton.jit
def told(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.device_print("x", x)
    tl.store(y_ptr + offsets, x)


@triton.jit
def locked_total(x_ptr, y_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    """A sum under a lock, and one that needs none."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(x, 0))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
    tl.atomic_add(y_ptr + 1, tl.sum(x * x, 0))
    tl.atomic_max(y_ptr + 2, tl.max(x, 0))


@triton.jit
def waited_for(x_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    """The last of the blocks goes on when all have added themselves."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)
    tl.atomic_add(flag_ptr, 1)
    if tl.program_id(0) == 0:
        while tl.load(flag_ptr, volatile=True) < tl.num_programs(0):
            pass
        tl.store(x_ptr, 0.0)


@triton.jit
def column_totals(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), n, 64):
        total += tl.load(x_ptr + row * stride + offsets)
    tl.atomic_add(y_ptr + offsets, total)
