"""GELU, the activation of most transformers: y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).

A handful of multiplications per number read and written: on any GPU the time is that of moving the
bytes. The minimum is one read and one write of every element; a version loses time by moving more
than that, or by moving it in small pieces.
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

SQRT_2_OVER_PI = 0.7978845608028654
CUBIC = 0.044715

CUDA_GELU = r"""
__device__ float gelu(float v) {
    float inner = 0.7978845608f * (v + 0.044715f * v * v * v);
    // tanh(z) = 1 - 2 / (exp(2z) + 1), which is right for large z, too.
    float tanh_inner = 1.0f - 2.0f / (__expf(2.0f * inner) + 1.0f);
    return 0.5f * v * (1.0f + tanh_inner);
}
"""
CUDA_SCALAR = (
    CUDA_GELU
    + r"""
extern "C" __global__ void gelu_scalar(const float* x, float* y, int n) {
    // One element per thread: each load instruction of a warp moves 32 × 4 = 128 bytes. An
    // SM holds 2048 threads, so at most 8 kB are in flight to it. Memory answers
    // after some 0.6 µs: 132 SMs × 8 kB ÷ 0.6 µs is 1.8 TB/s, whatever it could give.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu(x[i]);
}
"""
)
CUDA_VECTOR = (
    CUDA_GELU
    + r"""
__device__ float4 gelu(float4 v) {
    return make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
}
extern "C" __global__ void gelu_vector(const float4* x, float4* y, int n) {
    // Eight elements per thread, as two loads of four neighbours: each load instruction of a warp
    // moves 32 × 16 = 512 bytes, and the second is issued before the first has come. Threads that
    // follow each other take neighbouring float4s, so that both instructions are coalesced.
    int i = blockIdx.x * 2 * blockDim.x + threadIdx.x, j = i + blockDim.x;
    float4 a, b;
    if (i < n) a = x[i];
    if (j < n) b = x[j];
    if (i < n) y[i] = gelu(a);
    if (j < n) y[j] = gelu(b);
}
"""
)


def manual(x: Tensor) -> Tensor:
    """The formula as written: nine operations, each a kernel with its own round trip to memory."""
    return 0.5 * x * (1.0 + torch.tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)))


def with_torch(x: Tensor) -> Tensor:
    """torch's own kernel: one read, one write."""
    return torch.nn.functional.gelu(x, approximate="tanh")


_compiled = compiled(manual)


def with_compile(x: Tensor) -> Tensor:
    """The manual formula, fused into one kernel by torch.compile."""
    result: Tensor = _compiled(x)
    return result


def cuda_scalar(x: Tensor) -> Tensor:
    """CUDA C++, one element per thread: the same traffic, in pieces of 32 bits."""
    y = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 256)
    cuda_cpp.kernel(CUDA_SCALAR, "gelu_scalar")((blocks, 1, 1), (256, 1, 1), (x, y, x.numel()))
    return y


def cuda_vector(x: Tensor) -> Tensor:
    """CUDA C++, eight elements per thread as two float4: the same traffic in 128-bit pieces."""
    y = torch.empty_like(x)
    quads = x.numel() // 4
    blocks = triton.cdiv(quads, 2 * 256)
    cuda_cpp.kernel(CUDA_VECTOR, "gelu_vector")((blocks, 1, 1), (256, 1, 1), (x, y, quads))
    return y


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr = 1024):
    # 1024 elements for 4 warps are 8 per thread: two loads of 128 bits each. The compiler can only
    # make them so wide where n is divisible by 16: the mask is then the same for all of a load.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n).to(tl.float32)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    # tanh(z) = 1 − 2 / (exp(2z) + 1), which is right for large z, too.
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0)
    tl.store(y + i, 0.5 * v * (1.0 + tanh), i < n)


def with_triton(x: Tensor) -> Tensor:
    """Triton: one read, one write, as wide as the alignment allows; 32 bytes per thread."""
    y = torch.empty_like(x)
    block = 4 * 32 * 32 // x.element_size()
    gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block, num_warps=4)
    return y


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor]:
    """One tensor of `size` numbers, normally distributed."""
    made = torch.Generator(device=device).manual_seed(0)
    return (torch.randn(size, generator=made, device=device, dtype=torch.float32).to(dtype),)


def check(x: Tensor) -> None:
    """Any shape; contiguous, as the versions count elements from the first."""
    checks.tensor("gelu", "x", x)
    checks.floating("gelu", "x", x)


def bytes_moved(x: Tensor) -> int:
    """Each element is read once and written once."""
    return 2 * x.numel() * x.element_size()


def flop(x: Tensor) -> int:
    """Nine operations per element: five products, two sums and the halving, and tanh as one."""
    return 9 * x.numel()


def is_float32(x: Tensor) -> bool:
    """The CUDA C++ versions take float32 only."""
    return x.dtype == torch.float32


def is_in_quads(x: Tensor) -> bool:
    """Whether there are whole float4s at an address divisible by 16."""
    return is_float32(x) and x.numel() % 4 == 0 and x.data_ptr() % 16 == 0


OPERATION = Operation(
    name="gelu",
    title="GELU, tanh approximation",
    inputs=inputs,
    reference=manual,
    versions=(
        Version("manual", manual, note="nine PyTorch operations"),
        Version("torch", with_torch, note="F.gelu"),
        Version("torch.compile", with_compile, note="the manual formula, fused"),
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
            "128 bits per load, two per thread",
            supports=is_in_quads,
            cuda_source=CUDA_VECTOR,
        ),
        Version("triton", with_triton, "triton", "the same by Triton", kernels=(gelu_kernel,)),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(1 << 20, 1 << 24, 1 << 28),
    small_sizes=(1, 97, 1024, 4096),
    tolerances={"float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2},
    check=check,
)
