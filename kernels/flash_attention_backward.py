"""Gradients of attention by recomputation: FlashAttention-2, backward, and a function for autograd.

With P = softmax(S), S = Q · Kᵀ / √d and the gradient G of O:

    dV = Pᵀ · G      dP = G · Vᵀ      dS = P ∘ (dP − δ)      dQ = dS · K / √d      dK = dSᵀ · Q / √d

where δ is a row's sum of O ∘ G. Keeping P would cost n² numbers per head. Instead each tile is
computed again, as exp(S − lse): with the logarithm of the row's sum, which the forward pass kept,
that takes no second walk along the row. Five products of 2·n²·d operations, where the forward pass
has two (Dao, "FlashAttention-2", arXiv:2307.08691, algorithm 2).

dQ sums over keys, dK and dV over queries. The paper does both in one kernel, and adds up dQ in
memory, atomically. Here they are two kernels, and both compute S and dP: seven products instead of
five, but no atomics, and the same result every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import checks, flash_attention
from kernels.flash_attention import LOG2_E, Tile, described, probabilities, scores_of
from kernels.input_guard import on_a_gpu
from kernels.matmul import product
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

# By head dimension, the one in use first. For dQ a block keeps one tile of results, for dK and dV
# two.
QUERY_TILES = {
    64: (Tile(128, 64, 8, 3), Tile(128, 128, 8, 2), Tile(128, 64, 4, 3)),
    128: (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2), Tile(128, 128, 8, 2)),
}
KEY_TILES = {
    64: (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(64, 64, 4, 3)),
    128: (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2), Tile(64, 64, 4, 3)),
}
# Sums of rows are kept up to a multiple of this, so that no loop has to ask where they end.
ROWS = 128


def naive(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, g: Tensor, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The five formulas, with n × n matrices in memory."""
    del o, lse
    p = probabilities(q, k, causal)
    dp = g @ v.transpose(-2, -1)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ g


def with_torch(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, g: Tensor, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """torch's own FlashAttention-2: the call that autograd makes, without the forward pass."""
    if q.device.type == "cpu":
        on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return tuple(on_cpu(g, q, k, v, o, lse, 0.0, causal))
    on_gpu = torch.ops.aten._scaled_dot_product_flash_attention_backward
    # Sequences of one length need no table of where they begin, and no dropout no random numbers.
    unused = torch.empty(2, dtype=torch.uint64, device=q.device)
    n = q.shape[-2]
    random = (unused, unused[0])
    return tuple(on_gpu(g, q, k, v, o, lse, None, None, n, n, 0.0, causal, *random))


@triton.jit
def prepare_kernel(o, g, lse, delta, sums, n, padded, D: tl.constexpr, ROWS: tl.constexpr):
    # δ: the sum of O ∘ G of each row, and lse in powers of 2; both 0 from n to the padded end.
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = (head * n + rows[:, None]) * D + tl.arange(0, D)[None, :]
    inside = (rows < n)[:, None]
    result = tl.load(o + place, inside, 0.0).to(tl.float32)
    gradient = tl.load(g + place, inside, 0.0).to(tl.float32)
    tl.store(delta + head * padded + rows, tl.sum(result * gradient, 1))
    natural = tl.load(lse + head * n + rows, rows < n, 0.0)
    tl.store(sums + head * padded + rows, natural * 1.4426950408889634)


@triton.jit
def along_keys(
    total, queries, gradient, row_sums, row_delta, k, v, head, first, begin, end, n, scale,
    MASK: tl.constexpr, KEPT: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    rows = first + tl.arange(0, KEPT)
    nothing = tl.zeros((KEPT, STEP), tl.float32)
    for start in range(begin, end, STEP):
        keys = k.load([head, start, 0]).reshape(STEP, D)
        values = v.load([head, start, 0]).reshape(STEP, D)
        scores = product(queries, tl.trans(keys), nothing)
        change = product(gradient, tl.trans(values), nothing)
        parts = tl.exp2(scores * scale - row_sums[:, None])
        if MASK != "none":
            columns = start + tl.arange(0, STEP)
            keep = columns[None, :] <= rows[:, None] if MASK == "causal" else columns[None, :] < n
            parts = tl.where(keep, parts, 0.0)
        slopes = parts * (change - row_delta[:, None])
        total = product(slopes.to(keys.dtype), keys, total)
    return total


@triton.jit
def query_kernel(
    q, k, v, g, dq, sums, delta, n, padded, scale, root,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    KEPT: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    # dQ of some queries, along the keys. As in the forward pass, the longest rows start first, and
    # what needs a mask is a loop of its own.
    index = tl.program_id(0)
    if CAUSAL:
        index = tl.num_programs(0) - 1 - index
    first, head = index * KEPT, tl.program_id(1)
    queries = q.load([head, first, 0]).reshape(KEPT, D)
    gradient = g.load([head, first, 0]).reshape(KEPT, D)
    rows = head.to(tl.int64) * padded + first + tl.arange(0, KEPT)
    row_sums, row_delta = tl.load(sums + rows), tl.load(delta + rows)
    total = tl.zeros((KEPT, D), tl.float32)
    whole = (first if CAUSAL else n) // STEP * STEP
    total = along_keys(
        total, queries, gradient, row_sums, row_delta, k, v, head, first, 0, whole, n, scale,
        "none", KEPT, STEP, D,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        end = tl.minimum(first + KEPT, n) if CAUSAL else n
        mask: tl.constexpr = "causal" if CAUSAL else "end"
        total = along_keys(
            total, queries, gradient, row_sums, row_delta, k, v, head, first, whole, end, n, scale,
            mask, KEPT, STEP, D,
        )  # fmt: skip
    dq.store([head, first, 0], (total * root).to(dq.dtype).reshape(1, KEPT, D))


@triton.jit
def along_queries(
    total_k, total_v, keys, values, q, g, sums, delta, head, first, begin, end, scale,
    CAUSAL: tl.constexpr, KEPT: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    # All tiles are transposed: keys are rows, so that Pᵀ and dSᵀ come out of one product as the
    # next one wants them, in registers.
    nothing = tl.zeros((KEPT, STEP), tl.float32)
    for start in range(begin, end, STEP):
        queries = q.load([head, start, 0]).reshape(STEP, D)
        gradient = g.load([head, start, 0]).reshape(STEP, D)
        row_sums = sums.load([head, start])
        scores = product(keys, tl.trans(queries), nothing)
        parts = tl.exp2(scores * scale - row_sums)
        if CAUSAL:
            columns = start + tl.arange(0, STEP)
            keep = columns[None, :] >= (first + tl.arange(0, KEPT))[:, None]
            parts = tl.where(keep, parts, 0.0)
        total_v = product(parts.to(gradient.dtype), gradient, total_v)
        row_delta = delta.load([head, start])
        change = product(values, tl.trans(gradient), nothing)
        slopes = parts * (change - row_delta)
        total_k = product(slopes.to(queries.dtype), queries, total_k)
    return total_k, total_v


@triton.jit
def key_kernel(
    q, k, v, g, dk, dv, sums, delta, n, scale, root,
    CAUSAL: tl.constexpr, KEPT: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    # dK and dV of some keys, along the queries: in a causal matrix from the diagonal on. Queries
    # and gradients from n on read as zero, and so add nothing; keys from n on are not written.
    first, head = tl.program_id(0) * KEPT, tl.program_id(1)
    keys = k.load([head, first, 0]).reshape(KEPT, D)
    values = v.load([head, first, 0]).reshape(KEPT, D)
    total_k = tl.zeros((KEPT, D), tl.float32)
    total_v = tl.zeros((KEPT, D), tl.float32)
    begin = 0
    if CAUSAL:
        crossed = first // STEP * STEP
        begin = tl.minimum(tl.cdiv(first + KEPT, STEP) * STEP, tl.cdiv(n, STEP) * STEP)
    total_k, total_v = along_queries(
        total_k, total_v, keys, values, q, g, sums, delta, head, first, begin, n, scale,
        False, KEPT, STEP, D,
    )  # fmt: skip
    if CAUSAL:
        total_k, total_v = along_queries(
            total_k, total_v, keys, values, q, g, sums, delta, head, first, crossed, begin, scale,
            True, KEPT, STEP, D,
        )  # fmt: skip
    dk.store([head, first, 0], (total_k * root).to(dk.dtype).reshape(1, KEPT, D))
    dv.store([head, first, 0], total_v.to(dv.dtype).reshape(1, KEPT, D))


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    g: Tensor,
    causal: bool = False,
    query_tile: Tile | None = None,
    key_tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV, from what forward() gave and the gradient of its result."""
    b, h, n, d = q.shape
    padded = triton.cdiv(n, ROWS) * ROWS
    sums, delta = torch.empty(2, b * h, padded, device=q.device, dtype=torch.float32)
    dq, dk, dv = (torch.empty_like(each) for each in (q, k, v))
    prepare_kernel[(padded // ROWS, b * h)](
        o, g, lse, delta, sums, n, padded, D=d, ROWS=ROWS, num_warps=8
    )
    root = 1 / math.sqrt(d)
    tile = query_tile or QUERY_TILES[d][0]
    kept, step = tile.kept, tile.step
    query_kernel[(triton.cdiv(n, kept), b * h)](
        described(q, kept), described(k, step), described(v, step), described(g, kept),
        described(dq, kept), sums, delta, n, padded, root * LOG2_E, root,
        CAUSAL=causal, EVEN=n % step == 0, D=d, **tile.options,
    )  # fmt: skip
    tile = key_tile or KEY_TILES[d][0]
    kept, step = tile.kept, tile.step
    described_sums, described_delta = (
        TensorDescriptor.from_tensor(each, [1, step]) for each in (sums, delta)
    )
    key_kernel[(triton.cdiv(n, kept), b * h)](
        described(q, step), described(k, kept), described(v, kept), described(g, step),
        described(dk, kept), described(dv, kept), described_sums, described_delta,
        n, root * LOG2_E, root,
        CAUSAL=causal, D=d, **tile.options,
    )  # fmt: skip
    return dq, dk, dv


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        q, k, v, causal = given
        o, lse = flash_attention.forward(q, k, v, causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal = causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Of a sum the gradient is one number, repeated: TMA has to find it as often in memory. Of
        # a part it may be a slice, and begin where TMA cannot.
        g = gradients[0].contiguous()
        if g.data_ptr() % 16:
            g = g.clone()
        return (*backward(*ctx.saved_tensors, g, ctx.causal), None)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """softmax(Q · Kᵀ / √d) · V, differentiable once. Raises InputError as dispatch() does."""
    flash_attention.check(q, k, v)
    on_a_gpu("flash_attention: triton", "triton", (q, k, v))
    with torch.cuda.device_of(q):
        result: Tensor = _Attention.apply(q, k, v, causal)
    return result


def inputs_of(dim: int, causal: bool) -> Callable[..., tuple[Tensor, ...]]:
    """Makes inputs for heads of `dim` numbers."""
    forward_inputs = flash_attention.inputs_of(dim)

    def inputs(
        size: int, dtype: Any, device: str, batch: int | None = None, heads: int | None = None
    ) -> tuple[Tensor, ...]:
        """Q, K, V as for the forward pass, what it gives for them, and a gradient."""
        q, k, v = forward_inputs(size, dtype, device, batch, heads)
        made = torch.Generator(device=device).manual_seed(1)
        g = torch.randn(q.shape, generator=made, device=device).to(dtype)
        return q, k, v, *_forward(q, k, v, causal), g

    return inputs


def _forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """On a CPU without Triton, so that the numbers are checked with none of its results."""
    if q.device.type == "cuda":
        return flash_attention.forward(q, k, v, causal)
    lse = scores_of(q.float(), k.float(), causal).logsumexp(-1)
    return flash_attention.naive(q, k, v, causal), lse


def check(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, g: Tensor) -> None:
    """As for the forward pass, with its result and a gradient like Q."""
    this = "flash_attention_backward"
    flash_attention.check(q, k, v)
    for name, each in (("o", o), ("lse", lse), ("g", g)):
        checks.tensor(this, name, each)
    for name, each in (("o", o), ("g", g)):
        checks.alike(this, q, each, f"q and {name}")
    checks.aligned(this, "g", g)
    if lse.shape != q.shape[:-1] or lse.dtype != torch.float32 or lse.device != q.device:
        what = f"{this}: lse has the shape {tuple(lse.shape)} and type {lse.dtype}"
        raise InputError(what, "give what forward() gave: a float32 for each query")


def bytes_moved(q: Tensor, *_: Any) -> int:
    """8·b·h·n·d elements: Q, K, V, O and G read, dQ, dK and dV written; and b·h·n sums read."""
    return 8 * q.numel() * q.element_size() + 4 * (q.numel() // q.shape[-1])


def flop(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, g: Tensor, causal: bool = False
) -> int:
    """10·b·h·n²·d, half if causal: five products to two of the forward pass; none counts twice."""
    del o, lse, g
    return flash_attention.flop(q, k, v, causal) * 5 // 2


def attention_operation(name: str, dim: int, causal: bool) -> Operation:
    """An entry: the same functions for another size of heads, causal or not."""

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        return update_wrapper(partial(function, causal=causal), function)

    return Operation(
        name=name,
        title=f"gradients of attention, heads of {dim}, {'causal' if causal else 'not causal'}",
        inputs=inputs_of(dim, causal),
        reference=bound(naive),
        versions=(
            Version("naive", bound(naive), note="n × n matrices in memory"),
            Version("triton", bound(backward), "triton", "recomputed", (key_kernel, query_kernel)),
            Version("torch", bound(with_torch), note="its flash kernel"),
        ),
        bytes_moved=bytes_moved,
        flop=bound(flop),
        sizes=(512, 2048, 8192, 16384),
        small_sizes=(1, 33, 128, 200),
        tolerances={name: 2 * most for name, most in flash_attention.TOLERANCES.items()},
        check=check,
        size_means="positions",
        tensor_cores=True,
    )


OPERATION = attention_operation("flash_attention_backward", dim=64, causal=False)
