"""Layer norm of every row: y = (x − mean) / √(variance + ε) · w + b.

Like softmax, it needs two statistics of a whole row before it can write the first element, so the
row should stay on the chip. The variance as mean(x²) − mean(x)² would need one pass over the row
instead of two, but subtracts two large numbers where the mean is large: with the row in registers
the second pass costs nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.compiled import compiled
from kernels.row_tile import row_tile
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

EPSILON = 1e-5
MOST_COLUMNS = 16384
"""As many elements fit in the registers of one block."""


def manual(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Nine kernels or so, each of them with a round trip to memory."""
    centered = x - x.mean(dim=1, keepdim=True)
    variance = (centered * centered).mean(dim=1, keepdim=True)
    return centered * torch.rsqrt(variance + EPSILON) * w + b


def with_torch(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """torch's own kernel. It also keeps mean and variance, for a backward pass."""
    return torch.nn.functional.layer_norm(x, (x.shape[1],), w, b, EPSILON)


_compiled = compiled(manual)


def with_compile(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The manual formula, fused into one kernel by torch.compile."""
    result: Tensor = _compiled(x, w, b)
    return result


@triton.jit
def layer_norm_kernel(
    x, w, b, y, rows, columns, epsilon, ROWS: tl.constexpr = 1, BLOCK: tl.constexpr = 4096
):
    # Whole rows in registers, as in softmax. w and b are the same for all rows: after the first
    # blocks they come from the L2 cache.
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    place = row * columns + column
    v = tl.load(x + place, inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    mean = tl.sum(v, axis=1)[:, None] / columns
    # Columns that are not there would count with −mean.
    centered = tl.where(column < columns, v - mean, 0.0)
    variance = tl.sum(centered * centered, axis=1)[:, None] / columns
    weight = tl.load(w + column, column < columns, other=0.0).to(tl.float32)
    bias = tl.load(b + column, column < columns, other=0.0).to(tl.float32)
    result = centered * (1.0 / tl.sqrt(variance + epsilon)) * weight + bias
    tl.store(y + place, result, inside)


def with_triton(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Triton: whole rows in registers; one read, one write."""
    y = torch.empty_like(x)
    rows, columns = x.shape
    tile = row_tile(columns)
    grid = (triton.cdiv(rows, tile.rows),)
    layer_norm_kernel[grid](
        x, w, b, y, rows, columns, EPSILON, tile.rows, tile.block, num_warps=tile.warps
    )
    return y


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """`size` columns; on a GPU 2²⁶ elements, but 4096 rows at least, and on a CPU 37 rows."""
    rows = max(4096, (1 << 26) // size) if device.startswith("cuda") else 37
    made = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(rows, size, generator=made, device=device, dtype=torch.float32)
    both = torch.randn(2, size, generator=made, device=device, dtype=torch.float32)
    return (x + 1).to(dtype), both[0].to(dtype).clone(), both[1].to(dtype).clone()


def check(x: Tensor, w: Tensor, b: Tensor) -> None:
    """A contiguous matrix, and a weight and a bias for each column."""
    for name, tensor in (("x", x), ("w", w), ("b", b)):
        checks.tensor("layer_norm", name, tensor)
        checks.floating("layer_norm", name, tensor)
        checks.same_kind("layer_norm", x, tensor, f"x and {name}")
    checks.matrix("layer_norm", "x", x)
    for name, tensor in (("w", w), ("b", b)):
        if tensor.shape != x.shape[1:]:
            what = f"layer_norm: {name} has the shape {tuple(tensor.shape)}"
            raise InputError(what, f"give one of {x.shape[1]} elements, one for each column")


def bytes_moved(x: Tensor, w: Tensor, b: Tensor) -> int:
    """Each element of x is read once and written once; w and b are read once."""
    return (2 * x.numel() + w.numel() + b.numel()) * x.element_size()


def flop(x: Tensor, _w: Tensor, _b: Tensor) -> int:
    """Seven per element: two sums, a difference, a square, the norm, the weight and the bias."""
    return 7 * x.numel()


def fits_a_block(x: Tensor, _w: Tensor, _b: Tensor) -> bool:
    """Whether a row fits in the registers of a block."""
    return x.shape[1] <= MOST_COLUMNS


OPERATION = Operation(
    name="layer_norm",
    title="Layer norm of rows",
    inputs=inputs,
    reference=manual,
    versions=(
        Version("manual", manual, note="mean, variance and the rest, each a kernel"),
        Version("torch", with_torch, note="F.layer_norm"),
        Version("torch.compile", with_compile, note="the manual formula, fused"),
        Version(
            "triton",
            with_triton,
            "triton",
            "whole rows in registers",
            kernels=(layer_norm_kernel,),
            supports=fits_a_block,
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(256, 1024, 4096, 16384),
    small_sizes=(1, 97, 1024, 5000),
    tolerances={"float32": 2e-6, "float16": 3e-3, "bfloat16": 2e-2},
    check=check,
    size_means="columns",
)
