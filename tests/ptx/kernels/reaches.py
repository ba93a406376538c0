"""Kernels whose constexprs are a tile, a quantization group, the reach of a scale, or a size.

Each `launch_…` runs one; which of their constexprs are free to choose is for tests to say.
"""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x, y = tl.load(x_ptr + offsets, inside), tl.load(y_ptr + offsets, inside)
    tl.store(z_ptr + offsets, x + y, inside)


@triton.jit
def quantize_groups(x_ptr, q_ptr, scale_ptr, BLOCK_SIZE: tl.constexpr):
    """One scale per BLOCK_SIZE elements: the block is the quantization group."""
    group = tl.program_id(0)
    offsets = group * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets).to(tl.float32)
    scale = tl.max(tl.abs(x), 0) / 448.0
    tl.store(q_ptr + offsets, (x / scale).to(q_ptr.dtype.element_ty))
    tl.store(scale_ptr + group, scale)


@triton.jit
def softmax(x_ptr, y_ptr, pitch, columns, BLOCK: tl.constexpr):
    """BLOCK covers a whole row."""
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * pitch + offsets, offsets < columns, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * pitch + offsets, e / tl.sum(e, 0), offsets < columns)


@triton.jit
def softmax_unmasked(x_ptr, y_ptr, pitch, BLOCK: tl.constexpr):
    """BLOCK is the length of a row: a larger one reads and writes the next."""
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * pitch + offsets)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * pitch + offsets, e / tl.sum(e, 0))


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Tiles in groups, as in Triton's tutorial; every block size is free to choose."""
    program = tl.program_id(0)
    across = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * across)
    first = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    m = first + (program % (GROUP_M * across)) % height
    n = (program % (GROUP_M * across)) // height
    rows = (m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows[:, None] * stride_am + inner[None, :]
    b_at = b_ptr + inner[:, None] * stride_bk + columns[None, :]
    c = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_at, inner[None, :] < K - k * BLOCK_K, 0.0)
        b = tl.load(b_at, inner[:, None] < K - k * BLOCK_K, 0.0)
        c = tl.dot(a, b, c)
        a_at += BLOCK_K
        b_at += BLOCK_K * stride_bk
    rows = m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    at = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    tl.store(at, c.to(c_ptr.dtype.element_ty), inside)


@triton.jit
def matmul_fp8(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, M, N, K, scales,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One scale per BLOCK_K of a row of A, one per tile of B: BLOCK_K is the scales' reach."""
    m, n = tl.program_id(0), tl.program_id(1)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    c = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        at = k * BLOCK_K + inner
        a = tl.load(a_ptr + rows[:, None] * K + at[None, :], at[None, :] < K, 0.0)
        b = tl.load(b_ptr + columns[None, :] * K + at[:, None], at[:, None] < K, 0.0)
        scale = tl.load(a_scale_ptr + rows * scales + k)
        weight = tl.load(b_scale_ptr + n * scales + k)
        c += tl.dot(a, b) * scale[:, None] * weight
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c.to(c_ptr.dtype.element_ty))


@triton.jit
def decode(
    q_ptr, k_ptr, v_ptr, lengths_ptr, out_ptr, stride_kb, stride_kt, scale,
    BLOCK_T: tl.constexpr, BLOCK_DMODEL: tl.constexpr,
):  # fmt: skip
    """Attention of one query to all keys; BLOCK_DMODEL is the head dimension."""
    batch = tl.program_id(0)
    d, t = tl.arange(0, BLOCK_DMODEL), tl.arange(0, BLOCK_T)
    q = tl.load(q_ptr + batch * BLOCK_DMODEL + d).to(tl.float32)
    length = tl.load(lengths_ptr + batch)
    total = tl.zeros((BLOCK_DMODEL,), tl.float32)
    largest, weight = -float("inf"), 0.0
    for start in range(0, length, BLOCK_T):
        inside = start + t < length
        at = batch * stride_kb + (start + t)[:, None] * stride_kt + d[None, :]
        k = tl.load(k_ptr + at, inside[:, None], 0.0).to(tl.float32)
        score = tl.where(inside, tl.sum(q[None, :] * k, 1) * scale, -float("inf"))
        higher = tl.maximum(largest, tl.max(score, 0))
        p = tl.exp(score - higher)
        v = tl.load(v_ptr + at, inside[:, None], 0.0).to(tl.float32)
        again = tl.exp(largest - higher)
        total = total * again + tl.sum(p[:, None] * v, 0)
        weight = weight * again + tl.sum(p, 0)
        largest = higher
    tl.store(out_ptr + batch * BLOCK_DMODEL + d, (total / weight).to(out_ptr.dtype.element_ty))


def made(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(sizes, device="cuda", dtype=dtype)


def launch_add(n: int = 100_003) -> None:
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](made(n), made(n), made(n), n, BLOCK=256)


def launch_add_fixed(n: int = 100_003) -> None:
    add[(triton.cdiv(n, 256),)](made(n), made(n), made(n), n, BLOCK=256)


def launch_add_large(n: int = 1 << 28) -> None:
    launch_add(n)


def launch_quantize_groups(n: int = 1 << 20) -> None:
    x, q, scales = made(n, dtype=torch.bfloat16), made(n, dtype=torch.float8_e4m3fn), made(n // 128)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)  # noqa: E731
    quantize_groups[grid](x, q, scales, BLOCK_SIZE=128)


def launch_softmax(rows: int = 8192, columns: int = 1000) -> None:
    x, y = made(rows, columns), made(rows, columns)
    softmax[(rows,)](x, y, x.stride(0), columns, BLOCK=triton.next_power_of_2(columns))


def launch_softmax_unmasked(rows: int = 512, columns: int = 256) -> None:
    x, y = made(rows, columns), made(rows, columns)
    softmax_unmasked[lambda _: (rows,)](x, y, x.stride(0), BLOCK=columns)


def launch_matmul(m: int = 1024, n: int = 1024, k: int = 512) -> None:
    half = torch.float16
    a, b, c = made(m, k, dtype=half), made(k, n, dtype=half), made(m, n, dtype=half)
    matmul[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8,
    )  # fmt: skip


def launch_matmul_fp8(m: int = 256, n: int = 256, k: int = 1024) -> None:
    fp8 = torch.float8_e4m3fn
    a, b, c = made(m, k, dtype=fp8), made(n, k, dtype=fp8), made(m, n, dtype=torch.bfloat16)
    scales = k // 128
    matmul_fp8[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]))](
        a, b, c, made(m, scales), made(n // 128, scales), m, n, k, scales,
        BLOCK_M=64, BLOCK_N=128, BLOCK_K=128,
    )  # fmt: skip


def launch_decode(batch: int = 8, tokens: int = 1000, head: int = 64) -> None:
    half = torch.float16
    q, out = made(batch, head, dtype=half), made(batch, head, dtype=half)
    k, v = (made(batch, tokens, head, dtype=half) for _ in range(2))
    lengths = torch.arange(tokens - batch, tokens, device="cuda", dtype=torch.int32)
    decode[lambda _: (batch,)](
        q, k, v, lengths, out, k.stride(0), k.stride(1), head**-0.5,
        BLOCK_T=32, BLOCK_DMODEL=head,
    )  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[f"launch_{name}"]()
