"""A copy, GELU three ways and matrix products, whose bytes and FLOP are known by arithmetic.

    traceview record -o rates.sqlite tests/data/rates.py
    ncu --csv --page raw --metrics <see README.md> python tests/data/rates.py

The arrays are far larger than the L2 cache, so that what Nsight Compute counts at the memory can
be held against bytes computed from shapes. Needs a GPU.
"""

import torch
import triton
import triton.language as tl

CUDA = r"""
extern "C" __global__ void gelu_scalar(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
}
extern "C" __global__ void gelu_vector(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    float* e = reinterpret_cast<float*>(&v);
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        e[k] = 0.5f * e[k] * (1.0f + tanhf(0.79788456f * (e[k] + 0.044715f * e[k] * e[k] * e[k])));
    y[i] = v;
}
"""
SIDE = 16_384


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    t = 0.79788456 * (v + 0.044715 * v * v * v)
    e = tl.exp(2.0 * t)
    tl.store(y + i, 0.5 * v * (2.0 - 2.0 / (e + 1.0)), i < n)


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(SIDE, SIDE, device="cuda")
    y = torch.empty_like(x)
    n = x.numel()
    scalar = torch.cuda._compile_kernel(CUDA, "gelu_scalar")
    vector = torch.cuda._compile_kernel(CUDA, "gelu_vector")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        copy_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        scalar((n // 256, 1, 1), (256, 1, 1), (x, y, n))
        vector((n // 1024, 1, 1), (256, 1, 1), (x, y, n // 4))
        torch.nn.functional.gelu(x)
        a @ a
        x[:4096, :4096] @ x[:4096, :4096]
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
