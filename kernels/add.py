"""Add two tensors: z = x + y. One addition for every 12 bytes (float32) that move.

An H200 can do some 33 · 10¹² additions per second, but move only 4.8 · 10¹² bytes per second, which
is enough for 0.4 · 10¹²: the arithmetic units starve, and the time is that of the traffic. What can
be lost is bandwidth, by too few bytes in flight at once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks, cuda_cpp
from kernels.compiled import compiled
from traceview.trials.bench.operation import Operation, Version

BYTES_PER_THREAD = 32
WARPS = 4

CUDA_SCALAR = r"""
extern "C" __global__ void add_scalar(const float* x, const float* y, float* z, int n) {
    // One element per thread: two loads of 4 bytes are in flight for each of at most 2048 threads
    // of an SM, 16 kB. To hide the memory's latency it would take 25 kB or more.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
"""
CUDA_VECTOR = r"""
extern "C" __global__ void add_vector(const float4* x, const float4* y, float4* z, int n) {
    // Four neighbours per thread, in one instruction of 128 bits: four times the bytes in flight.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = x[i], b = y[i];
    z[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
"""


def reference(x: Tensor, y: Tensor) -> Tensor:
    """The sum, element by element."""
    return x + y


_compiled = compiled(reference)


def with_compile(x: Tensor, y: Tensor) -> Tensor:
    """torch.compile: there is nothing to fuse in a single addition, so nothing to gain."""
    result: Tensor = _compiled(x, y)
    return result


def cuda_scalar(x: Tensor, y: Tensor) -> Tensor:
    """CUDA C++, one element per thread."""
    z = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 256)
    run = cuda_cpp.kernel(CUDA_SCALAR, "add_scalar")
    run((blocks, 1, 1), (256, 1, 1), (x, y, z, x.numel()))
    return z


def cuda_vector(x: Tensor, y: Tensor) -> Tensor:
    """CUDA C++, four elements per thread as a float4."""
    z = torch.empty_like(x)
    quads = x.numel() // 4
    run = cuda_cpp.kernel(CUDA_VECTOR, "add_vector")
    run((triton.cdiv(quads, 256), 1, 1), (256, 1, 1), (x, y, z, quads))
    return z


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr = 1024):
    # A program is written for a block of numbers; Triton spreads it over the threads, and gives
    # each of them neighbours, so that it can load 128 bits at once.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, i < n)
    b = tl.load(y + i, i < n)
    if a.dtype.is_floating():
        # Numbers of 16 bits are added in float32 and rounded once; it costs no time here.
        a, b = a.to(tl.float32), b.to(tl.float32)
    tl.store(z + i, a + b, i < n)


def with_triton(x: Tensor, y: Tensor) -> Tensor:
    """Triton: 32 bytes per thread per tensor, two loads of 128 bits, whatever the type."""
    z = torch.empty_like(x)
    block = WARPS * 32 * BYTES_PER_THREAD // x.element_size()
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, z, x.numel(), BLOCK=block, num_warps=WARPS)
    return z


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor]:
    """Two tensors of `size` numbers: normally distributed, or whole numbers within ± 1000."""
    made = torch.Generator(device=device).manual_seed(0)
    if dtype.is_floating_point:
        both = torch.randn(2, size, generator=made, device=device, dtype=torch.float32)
    else:
        both = torch.randint(-1000, 1001, (2, size), generator=made, device=device)
    return both[0].to(dtype).clone(), both[1].to(dtype).clone()


def check(x: Tensor, y: Tensor) -> None:
    """Two tensors of one shape and type, contiguous: elements are counted from the first."""
    checks.tensor("add", "x", x)
    checks.tensor("add", "y", y)
    checks.alike("add", x, y)


def bytes_moved(x: Tensor, y: Tensor) -> int:
    """Two reads and one write of every element."""
    return (2 * x.numel() + y.numel()) * x.element_size()


def flop(x: Tensor, _: Tensor) -> int:
    """One addition per element."""
    return x.numel()


def is_float32(x: Tensor, _: Tensor) -> bool:
    """The CUDA C++ versions take float32 only."""
    return x.dtype == torch.float32


def is_in_quads(x: Tensor, y: Tensor) -> bool:
    """Whether there are whole float4s at addresses divisible by 16."""
    aligned = x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
    return is_float32(x, y) and x.numel() % 4 == 0 and aligned


OPERATION = Operation(
    name="add",
    title="Addition of two tensors",
    inputs=inputs,
    reference=reference,
    versions=(
        Version("torch", reference, note="x + y"),
        Version("torch.compile", with_compile, note="the same, generated"),
        Version(
            "cuda-scalar",
            cuda_scalar,
            "cuda",
            "32 bits per thread",
            supports=is_float32,
            cuda_source=CUDA_SCALAR,
        ),
        Version(
            "cuda-vector",
            cuda_vector,
            "cuda",
            "128 bits per thread",
            supports=is_in_quads,
            cuda_source=CUDA_VECTOR,
        ),
        Version("triton", with_triton, "triton", "2 × 128 bits per thread", kernels=(add_kernel,)),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1 << 20, 1 << 24, 1 << 28),
    small_sizes=(1, 97, 1024, 5000),
    tolerances={"float32": 1e-7, "float16": 1e-3, "bfloat16": 8e-3, "int32": 0.0, "int64": 0.0},
    check=check,
)
