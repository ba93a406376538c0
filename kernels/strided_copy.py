"""Copy a tensor, with neighbouring threads at neighbouring elements, 2 apart, and 32 apart.

All versions copy every element once, and differ only in which thread takes which. Memory moves
sectors of 32 bytes, eight float32. A warp whose lanes take 32 neighbours needs 4 sectors; with the
lanes 2 apart it needs 8, of which it uses half; from 8 apart on, 32, of which it uses an eighth.
The rest of each sector is asked for again by another block, long after the cache has let it go.

Bytes that a float32 costs, reads and writes together: 8 at stride 1, 16 at 2, 64 at 32. (A sector
that is only partly written may be read first, besides.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from traceview.trials.bench.operation import Operation, Version

BYTES_PER_THREAD = 32
WARPS = 4


def reference(x: Tensor) -> Tensor:
    """torch's own; within one GPU it is a copy by the driver."""
    return x.clone()


@triton.jit
def copy_kernel(x, y, n, blocks, STRIDE: tl.constexpr = 1, BLOCK: tl.constexpr = 1024):
    # With STRIDE 1 a thread takes neighbours, 128 bits in one instruction, and a warp 512 bytes
    # without a hole. With more, the first `blocks` programs take the elements 0, STRIDE, 2 STRIDE …
    # and the next as many start from 1: what lies side by side in memory is a whole trip through
    # the tensor apart in time.
    first = tl.program_id(0) // blocks if STRIDE > 1 else 0
    i = (tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)) * STRIDE + first
    tl.store(y + i, tl.load(x + i, i < n), i < n)


def with_stride(stride: int) -> Callable[[Tensor], Tensor]:
    """Triton, with neighbouring lanes `stride` elements apart; 32 bytes per thread."""

    def copied(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        block = WARPS * 32 * BYTES_PER_THREAD // x.element_size()
        blocks = triton.cdiv(triton.cdiv(x.numel(), stride), block)
        copy_kernel[(blocks * stride,)](
            x, y, x.numel(), blocks, STRIDE=stride, BLOCK=block, num_warps=WARPS
        )
        return y

    return copied


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """One tensor of `size` numbers."""
    made = torch.Generator(device=device).manual_seed(0)
    if dtype.is_floating_point:
        x = torch.randn(size, generator=made, device=device, dtype=torch.float32)
    else:
        x = torch.randint(-100, 101, (size,), generator=made, device=device)
    return (x.to(dtype),)


def check(x: Tensor) -> None:
    """Any shape; contiguous, as the versions count elements from the first."""
    checks.tensor("strided_copy", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once and written once."""
    return 2 * x.numel() * x.element_size()


def flop(_: Tensor) -> int:
    """None."""
    return 0


OPERATION = Operation(
    name="strided_copy",
    title="Copy, coalesced and strided",
    inputs=inputs,
    reference=reference,
    versions=(
        Version(
            "triton-stride-32",
            with_stride(32),
            "triton",
            "lanes 32 elements apart",
            kernels=(copy_kernel,),
        ),
        Version(
            "triton-stride-2",
            with_stride(2),
            "triton",
            "lanes 2 elements apart",
            kernels=(copy_kernel,),
        ),
        Version("torch", reference, note="x.clone()"),
        Version(
            "triton",
            with_stride(1),
            "triton",
            "lanes side by side, 128 bits each",
            kernels=(copy_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1 << 20, 1 << 24, 1 << 28),
    small_sizes=(1, 97, 1024, 5000),
    tolerances={"float32": 0.0, "float16": 0.0, "bfloat16": 0.0, "int32": 0.0, "int8": 0.0},
    check=check,
)
