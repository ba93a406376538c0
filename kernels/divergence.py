"""Warp divergence: the cost of an `if` when the lanes of a warp disagree.

Even elements take 256 small steps away from 1, odd ones 256 towards it. A warp has one program
counter for 32 lanes: where they disagree it executes both paths, one after the other, with half of
the lanes idle on each. Where whole warps agree, each executes one. And where both are the same
arithmetic with other numbers, no branch is needed at all.

512 FLOP for 8 bytes: unlike most kernels here, this one is bound by arithmetic, not by memory.
That is where divergence shows; in a memory-bound kernel it would be hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks, cuda_cpp
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

STEPS = 256
EPSILON = 2.0**-10

CUDA_WAYS = r"""
// v ← (1 + ε) v − ε for even elements, v ← (1 − ε) v + ε for odd ones: v = 1 stays where it is.
__device__ float away(float v) {
    for (int s = 0; s < 256; s++) v = fmaf(1.0009765625f, v, -0.0009765625f);
    return v;
}
__device__ float towards(float v) {
    for (int s = 0; s < 256; s++) v = fmaf(0.9990234375f, v, 0.0009765625f);
    return v;
}
"""
CUDA_PARITY = (
    CUDA_WAYS
    + r"""
extern "C" __global__ void branch_by_parity(const float* x, float* y, int n) {
    // Lanes 0, 2, 4 … go one way, 1, 3, 5 … the other: every warp executes both.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i % 2 == 0) y[i] = away(x[i]);
    else y[i] = towards(x[i]);
}
"""
)
CUDA_WARP = (
    CUDA_WAYS
    + r"""
extern "C" __global__ void branch_by_warp(const float* x, float* y, int n) {
    // The same work, distributed differently: of each 64 elements one warp takes the even ones,
    // the next the odd ones, so all lanes of a warp agree. They load every other element, but the
    // same block takes the rest while the sectors are still in its L1 cache.
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = t % 32, odd = t / 32 % 2, i = t / 64 * 64 + 2 * lane + odd;
    if (i >= n) return;
    if (odd == 0) y[i] = away(x[i]);
    else y[i] = towards(x[i]);
}
"""
)
CUDA_BRANCH_FREE = r"""
extern "C" __global__ void branch_free(const float* x, float* y, int n) {
    // Only the two numbers depend on the lane. Selecting them is one instruction each, and half as
    // many FFMA are left: 256 where a diverged warp issues 512 (nvdisasm, sm_90). It takes as long
    // all the same: an SM is busy for 538,000 clocks with 2²⁴ elements, with parity's for 552,000
    // (ncu, one H200). The numbers are in registers: `FFMA R7, R3, R7, -R2` fetches three. Where as
    // many instructions have one of the numbers in themselves, or a register twice, it is 298,000;
    // with two chains in turn, where every other FFMA finds two of the three where the one before
    // it left them (`.reuse` in the SASS), 426,000. So an FFMA that fetches three registers takes
    // two clocks of its scheduler, one that fetches two takes one
    // (benchmarks/kernels/fma_operands.py). triton-branch-free took half as long as this one: a
    // thread has neighbours there, so the compiler knows which are even and puts the numbers into
    // the instructions.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float epsilon = i % 2 == 0 ? 0.0009765625f : -0.0009765625f, v = x[i];
    for (int s = 0; s < 256; s++) v = fmaf(1.0f + epsilon, v, -epsilon);
    y[i] = v;
}
"""


def reference(x: Tensor) -> Tensor:
    """In closed form: each step multiplies the distance from 1 by 1 + ε, or by 1 − ε."""
    even = torch.arange(x.numel(), device=x.device) % 2 == 0
    grown = 1 + (x - 1) * (1 + EPSILON) ** STEPS
    shrunk = 1 + (x - 1) * (1 - EPSILON) ** STEPS
    return torch.where(even, grown, shrunk)


def cuda(source: str, name: str) -> Callable[[Tensor], Tensor]:
    """A CUDA C++ version, in blocks of 256 threads."""

    def computed(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        # Whole groups of 64, as a warp of the second version may start behind the last element.
        blocks = triton.cdiv(triton.cdiv(x.numel(), 64) * 64, 256)
        cuda_cpp.kernel(source, name)((blocks, 1, 1), (256, 1, 1), (x, y, x.numel()))
        return y

    return computed


@triton.jit
def both_ways_kernel(x, y, n, STEPS: tl.constexpr = 256, BLOCK: tl.constexpr = 1024):
    # Triton has no branch by element: `tl.where` takes from two results, as if both were computed
    # for all. Here they are not: a thread has four neighbours, so the compiler knows which of its
    # elements are even and drops what nobody takes. Its SASS has as many FFMA as branch_free's,
    # and on one H200 it took as long (140 µs). By a condition on values both would be computed.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    away = tl.load(x + i, i < n)
    towards = away
    for _ in range(STEPS):
        away = 1.0009765625 * away - 0.0009765625
        towards = 0.9990234375 * towards + 0.0009765625
    tl.store(y + i, tl.where(i % 2 == 0, away, towards), i < n)


@triton.jit
def branch_by_program_kernel(x, y, n, STEPS: tl.constexpr = 256, BLOCK: tl.constexpr = 1024):
    # A branch by program is a real one, and all of its warps agree. Even programs take the even
    # elements of 2 · BLOCK, odd ones the odd elements.
    odd = tl.program_id(0) % 2
    i = (tl.program_id(0) // 2 * BLOCK + tl.arange(0, BLOCK)) * 2 + odd
    v = tl.load(x + i, i < n)
    if odd == 0:
        for _ in range(STEPS):
            v = 1.0009765625 * v - 0.0009765625
    else:
        for _ in range(STEPS):
            v = 0.9990234375 * v + 0.0009765625
    tl.store(y + i, v, i < n)


@triton.jit
def branch_free_kernel(x, y, n, STEPS: tl.constexpr = 256, BLOCK: tl.constexpr = 1024):
    # One selection before the loop instead of one after it: half the arithmetic, as it is written.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    epsilon = tl.where(i % 2 == 0, 0.0009765625, -0.0009765625)
    for _ in range(STEPS):
        v = (1.0 + epsilon) * v - epsilon
    tl.store(y + i, v, i < n)


def with_triton(kernel: Any) -> Callable[[Tensor], Tensor]:
    """A Triton version, in blocks of 1024 elements."""

    def computed(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        # An even number of programs, as they may share 2 · 1024 elements in pairs.
        grid = (2 * triton.cdiv(x.numel(), 2 * 1024),)
        kernel[grid](x, y, x.numel(), STEPS=STEPS, BLOCK=1024, num_warps=4)
        return y

    return computed


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """One tensor of `size` numbers, normally distributed."""
    made = torch.Generator(device=device).manual_seed(0)
    return (torch.randn(size, generator=made, device=device, dtype=torch.float32).to(dtype),)


def check(x: Tensor) -> None:
    """One dimension of float32: even and odd are counted from the first element."""
    checks.tensor("divergence", "x", x)
    checks.floating("divergence", "x", x)
    if x.dim() != 1:
        what = f"divergence: x has {x.dim()} dimensions"
        raise InputError(what, "give one: even and odd are counted from its first element")


def bytes_moved(x: Tensor) -> int:
    """Each element is read once and written once."""
    return 2 * x.numel() * x.element_size()


def flop(x: Tensor) -> int:
    """256 products and sums per element."""
    return 2 * STEPS * x.numel()


OPERATION = Operation(
    name="divergence",
    title="A branch by element, 256 steps each way",
    inputs=inputs,
    reference=reference,
    versions=(
        Version(
            "cuda-parity",
            cuda(CUDA_PARITY, "branch_by_parity"),
            "cuda",
            "every warp executes both ways",
            cuda_source=CUDA_PARITY,
        ),
        Version(
            "cuda-warp",
            cuda(CUDA_WARP, "branch_by_warp"),
            "cuda",
            "the lanes of a warp agree",
            cuda_source=CUDA_WARP,
        ),
        Version(
            "cuda-branch-free",
            cuda(CUDA_BRANCH_FREE, "branch_free"),
            "cuda",
            "other numbers, the same instructions",
            cuda_source=CUDA_BRANCH_FREE,
        ),
        Version(
            "triton-both-ways",
            with_triton(both_ways_kernel),
            "triton",
            "both ways and a choice, as written",
            kernels=(both_ways_kernel,),
        ),
        Version(
            "triton-program",
            with_triton(branch_by_program_kernel),
            "triton",
            "whole programs agree",
            kernels=(branch_by_program_kernel,),
        ),
        Version(
            "triton-branch-free",
            with_triton(branch_free_kernel),
            "triton",
            "other numbers, the same instructions",
            kernels=(branch_free_kernel,),
        ),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1 << 20, 1 << 24, 1 << 26),
    small_sizes=(1, 97, 1024, 5000),
    # 256 roundings, each of half an ulp, of which most cancel out.
    tolerances={"float32": 1e-5},
    check=check,
)
