"""The sum of all elements of a tensor: one number out, so that nearly all traffic is reading.

Thousands of blocks each sum a part, and the parts have to meet somewhere. By atomic additions they
do so in one place of memory, in the order in which they arrive: with floating point the last digits
then differ from run to run. In two passes each block writes its part to a place of its own, and
one block sums those: the order is fixed, and so is the result.

Sums of 16-bit numbers are made and returned in float32 (65504 is the largest float16), those of
integers in int64.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from kernels.compiled import compiled
from traceview.trials.bench.operation import Operation, Version

BLOCK = 4096
PROGRAMS = 1024
"""For the first pass: about eight blocks for each SM of a large GPU, all at once."""


def sum_type(x: Tensor) -> torch.dtype:
    """What a sum of such elements is made in."""
    if not x.is_floating_point():
        return torch.int64
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def with_torch(x: Tensor) -> Tensor:
    """torch's own: a tree inside of blocks, and then one over them, in one launch."""
    return torch.sum(x, dtype=sum_type(x))


_compiled = compiled(with_torch)


def with_compile(x: Tensor) -> Tensor:
    """torch.compile splits the sum into two kernels, as the two passes below do."""
    result: Tensor = _compiled(x)
    return result


@triton.jit
def sum_atomic_kernel(x, total, n, BLOCK: tl.constexpr = 4096):
    # A block loads once, sums in registers and shuffles, and adds one number to the total. For 2²⁸
    # elements that is 65,536 atomic additions to one address, which the L2 cache does one by one.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, other=0).to(total.dtype.element_ty)
    tl.atomic_add(total, tl.sum(v, axis=0), sem="relaxed")


def with_atomics(x: Tensor) -> Tensor:
    """Triton, one atomic addition per block: simple, one read, but a different order every time."""
    total = torch.zeros((), dtype=sum_type(x), device=x.device)
    sum_atomic_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, total, x.numel(), BLOCK, num_warps=4)
    return total


@triton.jit
def sum_parts_kernel(x, parts, n, BLOCK: tl.constexpr = 4096):
    # As many blocks as the GPU holds at once, each going on until all is read. Every lane adds up
    # what is its own, which needs no exchange; the lanes meet once, at the end, and not once for
    # every 4096 elements as above.
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    sums = tl.zeros((BLOCK,), parts.dtype.element_ty)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        sums += tl.load(x + i, i < n, other=0).to(parts.dtype.element_ty)
    tl.store(parts + tl.program_id(0), tl.sum(sums, axis=0))


def with_two_passes(x: Tensor) -> Tensor:
    """Triton, in two passes: a sum for each block, then the sum of these by one more block."""
    programs = min(PROGRAMS, triton.cdiv(x.numel(), BLOCK))
    parts = torch.empty(programs, dtype=sum_type(x), device=x.device)
    sum_parts_kernel[(programs,)](x, parts, x.numel(), BLOCK, num_warps=4)
    total = torch.empty((), dtype=parts.dtype, device=x.device)
    sum_parts_kernel[(1,)](parts, total, programs, PROGRAMS, num_warps=4)
    return total


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """`size` numbers between 0 and 1, or whole ones below 1000, so that sums do not cancel out."""
    made = torch.Generator(device=device).manual_seed(0)
    if dtype.is_floating_point:
        return (torch.rand(size, generator=made, device=device).to(dtype),)
    return (torch.randint(0, 1000, (size,), generator=made, device=device).to(dtype),)


def check(x: Tensor) -> None:
    """Any shape; contiguous, as elements are counted from the first."""
    checks.tensor("sum", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once; the sum itself is nothing beside it."""
    return x.numel() * x.element_size()


def flop(x: Tensor) -> int:
    """One addition fewer than there are elements."""
    return x.numel() - 1


OPERATION = Operation(
    name="sum",
    title="Sum of all elements",
    inputs=inputs,
    reference=with_torch,
    versions=(
        Version("torch", with_torch, note="torch.sum"),
        Version("torch.compile", with_compile, note="generated"),
        Version(
            "triton-atomic",
            with_atomics,
            "triton",
            "one atomic addition per block",
            kernels=(sum_atomic_kernel,),
        ),
        Version(
            "triton-two-pass",
            with_two_passes,
            "triton",
            "a part for each block, then their sum",
            kernels=(sum_parts_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1 << 20, 1 << 24, 1 << 28),
    small_sizes=(1, 97, 1024, 70_001),
    # The parts meet in float32, for 2²⁸ elements 65,536 of them one by one.
    tolerances={"float32": 1e-4, "float16": 1e-4, "bfloat16": 1e-4, "int32": 0.0, "int64": 0.0},
    check=check,
)
