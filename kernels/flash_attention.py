"""Attention O = softmax(Q · Kᵀ / √d) · V without the n × n matrix: FlashAttention-2, forward.

For each of b·h heads, n queries meet n keys of d numbers: 4·n²·d FLOP over 4·n·d numbers.
Computed in three steps, the matrix of n² scores goes to memory and back twice: at n = 16,384 it has
64 times as many numbers as Q, K, V and O have together (d = 64). Softmax needs a row's maximum and
sum, which are known only at its end; but a sum that was taken relative to another maximum can be
corrected by one factor (Milakov and Gimelshein, arXiv:1805.02867). So a block keeps some queries
and their results, walks along the keys, and each score lives in registers alone (Dao,
"FlashAttention-2", arXiv:2307.08691, algorithm 1). What it leaves for the backward pass is one
number per row: the logarithm of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import checks
from kernels.matmul import product
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Tile:
    """A block keeps `kept` rows and walks along the others in steps of `step`."""

    kept: int
    step: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.kept} × {self.step}, {self.warps} warps, {self.stages} stages"

    @property
    def options(self) -> dict[str, int]:
        """As a launch takes them."""
        sizes = {"KEPT": self.kept, "STEP": self.step}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages}


# By head dimension, the one in use first; benchmarks/kernels/tile_sizes.py times all. Each warp
# group of 4 has 64 rows, so 8 warps are 128; 128 × d results in fp32 and 128 × step scores share
# 256 threads' registers.
FORWARD_TILES = {
    64: (Tile(128, 64, 4, 3), Tile(128, 128, 8, 3), Tile(128, 64, 8, 3), Tile(128, 128, 8, 2)),
    128: (Tile(128, 128, 8, 2), Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
}


def naive(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Three steps, each written to memory: n × n scores, their softmax, the results."""
    return probabilities(q, k, causal) @ v


def probabilities(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """The n × n matrix of each head: the softmax of its scores."""
    return torch.softmax(scores_of(q, k, causal), dim=-1)


def scores_of(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Q · Kᵀ / √d; if causal, −∞ above the diagonal, as no query sees a later key."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if not causal:
        return scores
    n = q.shape[-2]
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -math.inf)


def with_torch(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """torch's own FlashAttention-2: on a GPU, its kernel and no other."""
    attention = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        result: Tensor = attention(q, k, v, is_causal=causal)
    return result


@triton.jit
def walk(
    total,
    largest,
    weight,
    queries,
    k,
    v,
    head,
    first,
    begin,
    end,
    n,
    scale,
    MASK: tl.constexpr,
    KEPT: tl.constexpr,
    STEP: tl.constexpr,
    D: tl.constexpr,
):
    # Along the keys from `begin` to `end`. exp(x) is exp2(x · log2 e) on a GPU: with log2 e
    # in the scale, scaling and subtracting the maximum are one fused multiply-add for each score.
    rows = first + tl.arange(0, KEPT)
    for start in range(begin, end, STEP):
        keys = k.load([head, start, 0]).reshape(STEP, D)
        scores = product(queries, tl.trans(keys), tl.zeros((KEPT, STEP), tl.float32))
        if MASK != "none":
            columns = start + tl.arange(0, STEP)
            keep = columns[None, :] <= rows[:, None] if MASK == "causal" else columns[None, :] < n
            scores = tl.where(keep, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1) * scale)
        parts = tl.exp2(scores * scale - larger[:, None])
        # All that was summed so far was relative to the old maximum.
        change = tl.exp2(largest - larger)
        weight = weight * change + tl.sum(parts, 1)
        total = total * change[:, None]
        values = v.load([head, start, 0]).reshape(STEP, D)
        total = product(parts.to(values.dtype), values, total)
        largest = larger
    return total, largest, weight


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    o,
    lse,
    n,
    scale,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
    KEPT: tl.constexpr,
    STEP: tl.constexpr,
    D: tl.constexpr,
):
    # Of a causal matrix the last rows are the longest: they start first, so that no block starts
    # late with much to do.
    index = tl.program_id(0)
    if CAUSAL:
        index = tl.num_programs(0) - 1 - index
    first, head = index * KEPT, tl.program_id(1)
    # TMA moves tiles of three-dimensional tensors (heads, n, D): rows from n on read as zero, and
    # are not written.
    queries = q.load([head, first, 0]).reshape(KEPT, D)
    total = tl.zeros((KEPT, D), tl.float32)
    largest = tl.full((KEPT,), float("-inf"), tl.float32)
    weight = tl.zeros((KEPT,), tl.float32)
    # Keys that all rows of the block see need no mask: up to the diagonal, or the last whole step.
    # The rest are a loop of its own.
    whole = (first if CAUSAL else n) // STEP * STEP
    total, largest, weight = walk(
        total, largest, weight, queries, k, v, head, first, 0, whole, n, scale,
        "none", KEPT, STEP, D,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        end = tl.minimum(first + KEPT, n) if CAUSAL else n
        mask: tl.constexpr = "causal" if CAUSAL else "end"
        total, largest, weight = walk(
            total, largest, weight, queries, k, v, head, first, whole, end, n, scale,
            mask, KEPT, STEP, D,
        )  # fmt: skip
    result = (total / weight[:, None]).to(o.dtype)
    o.store([head, first, 0], result.reshape(1, KEPT, D))
    rows = first + tl.arange(0, KEPT)
    natural = (largest + tl.log2(weight)) * 0.6931471805599453
    tl.store(lse + head.to(tl.int64) * n + rows, natural, rows < n)


def forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """The result and, for the backward pass, the logarithm of each row's sum, in fp32."""
    n, d = q.shape[-2:]
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], device=q.device, dtype=torch.float32)
    tile = tile or FORWARD_TILES[d][0]
    kept, step = (q, o), (k, v)
    described_q, described_o = (described(each, tile.kept) for each in kept)
    described_k, described_v = (described(each, tile.step) for each in step)
    forward_kernel[(triton.cdiv(n, tile.kept), q.shape[0] * q.shape[1])](
        described_q, described_k, described_v, described_o, lse, n, LOG2_E / math.sqrt(d),
        CAUSAL=causal, EVEN=n % tile.step == 0, D=d, **tile.options,
    )  # fmt: skip
    return o, lse


def described(tensor: Tensor, rows: int) -> TensorDescriptor:
    """For TMA: the tensor as (b·h, n, d), in tiles of so many rows of one head."""
    heads = tensor.flatten(0, 1)
    return TensorDescriptor.from_tensor(heads, [1, rows, tensor.shape[-1]])


def with_triton(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """FlashAttention-2 in Triton."""
    return forward(q, k, v, causal)[0]


HIDDEN, TOKENS, SMALL, MOST_HEADS = 2048, 16384, 512, 65535


def inputs_of(dim: int) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Makes inputs for heads of `dim` numbers."""

    def inputs(
        size: int, dtype: Any, device: str, batch: int | None = None, heads: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of n = `size`: 16,384 tokens in all and h·d = 2,048, as in the paper.

        Under 512 that is one sequence of two heads, for a CPU.
        """
        made = torch.Generator(device=device).manual_seed(0)
        usual = (1, 2) if size < SMALL else (max(1, TOKENS // size), HIDDEN // dim)

        def one() -> Tensor:
            shape = (batch or usual[0], heads or usual[1], size, dim)
            return torch.randn(shape, generator=made, device=device).to(dtype)

        return one(), one(), one()

    return inputs


def check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Three tensors of one shape (b, h, n, d), d 64 or 128, of one 16-bit type, contiguous."""
    this = "flash_attention"
    for name, each in (("q", q), ("k", k), ("v", v)):
        checks.tensor(this, name, each)
        checks.alike(this, q, each, f"q and {name}")
        checks.aligned(this, name, each)
    if q.dim() != 4:
        what = f"{this}: q has {q.dim()} dimensions"
        raise InputError(what, "give four: batch, heads, sequence, head dimension")
    if q.shape[-1] not in FORWARD_TILES:
        raise InputError(f"{this}: heads have {q.shape[-1]} numbers", "give 64 or 128")
    if q.shape[0] * q.shape[1] > MOST_HEADS:
        what = f"{this}: there are {q.shape[0] * q.shape[1]:,} heads in all"
        raise InputError(what, f"give at most {MOST_HEADS:,}")
    if _name(q) not in TOLERANCES:
        raise InputError(f"{this}: q has the type {q.dtype}", f"give {' or '.join(TOLERANCES)}")


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def bytes_moved(q: Tensor, *_: Any) -> int:
    """4·b·h·n·d elements: Q, K and V read once, O written once; and b·h·n sums of 4 bytes."""
    return 4 * q.numel() * q.element_size() + 4 * (q.numel() // q.shape[-1])


def flop(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> int:
    """4·b·h·n²·d: two GEMMs of 2·n²·d FLOP per head; half if causal. Softmax not counted."""
    del k, v
    return 4 * q.numel() * q.shape[-2] // (2 if causal else 1)


# Probabilities are rounded to the type before the second product, and results after it.
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2}


def attention_operation(name: str, dim: int, causal: bool) -> Operation:
    """An entry: the same functions for another size of heads, causal or not."""

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        return update_wrapper(partial(function, causal=causal), function)

    return Operation(
        name=name,
        title=f"attention, heads of {dim}, {'causal' if causal else 'not causal'}",
        inputs=inputs_of(dim),
        reference=bound(naive),
        versions=(
            Version("naive", bound(naive), note="n × n scores in memory"),
            Version("triton", bound(with_triton), "triton", "online softmax", (forward_kernel,)),
            Version("torch", bound(with_torch), note="SDPA, its flash kernel"),
        ),
        bytes_moved=bytes_moved,
        flop=bound(flop),
        sizes=(512, 2048, 8192, 16384),
        small_sizes=(1, 33, 128, 200),
        tolerances=TOLERANCES,
        check=check,
        size_means="positions",
        tensor_cores=True,
    )


OPERATION = attention_operation("flash_attention", dim=64, causal=False)
