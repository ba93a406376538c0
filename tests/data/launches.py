"""Launch kernels of many shapes once each, for a profiler to write down what limits them.

    ncu --csv --page raw --metrics <see README.md> python tests/data/launches.py
    traceview record -o launches.sqlite tests/data/launches.py

The two runs launch the same kernels in the same order, so that what Nsight Compute says of each
launch can be held against what traceview computes from the recording. Needs a GPU.
"""

import torch
import triton
import triton.language as tl

CUDA = r"""
extern "C" __global__ void plain(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}
extern "C" __global__ void static_shared(float* x, int n) {
    __shared__ float tile[5000];
    for (int i = threadIdx.x; i < 5000; i += blockDim.x) tile[i] = x[i % n];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = tile[(threadIdx.x * 7) % 5000];
}
extern "C" __global__ void dynamic_shared(float* x, int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x % n];
    __syncthreads();
    x[threadIdx.x % n] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(256, 1) many_registers(float* x, int n) {
    float v[96];
    #pragma unroll
    for (int k = 0; k < 96; ++k) v[k] = x[(threadIdx.x * 97 + k) % n];
    for (int round = 0; round < n; ++round) {
        #pragma unroll
        for (int k = 0; k < 96; ++k) v[k] = v[k] * v[(k + 1) % 96] + 1.0f;
    }
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 96; ++k) sum += v[k];
    x[threadIdx.x % n] = sum;
}
extern "C" __global__ void __launch_bounds__(128, 12) few_registers(float* x, int n) {
    float v[24];
    #pragma unroll
    for (int k = 0; k < 24; ++k) v[k] = x[(threadIdx.x * 25 + k) % n];
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 24; ++k) sum += v[k] * v[(k * 5) % 24];
    x[threadIdx.x % n] = sum;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) paired(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 2.0f;
}
extern "C" __global__ void barriers(float* x, int n) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    asm volatile("bar.sync 9, 64;" ::: "memory");
    asm volatile("bar.sync 15, 64;" ::: "memory");
    if (threadIdx.x < n) x[threadIdx.x] += 1.0f;
}
"""


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def row_softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, i < columns, float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), i < columns)


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


def triton_kernels() -> None:
    x = torch.rand(1 << 22, device="cuda")
    for block in (128, 1024, 4096):
        for warps in (1, 2, 4, 8, 16):
            n = x.numel() - block
            add[(triton.cdiv(n, block),)](x, x, x, n, BLOCK=block, num_warps=warps)
    for columns, warps in ((500, 2), (1000, 4), (4000, 8), (16000, 16), (32000, 32)):
        rows = torch.rand(300, columns, device="cuda")
        row_softmax[(300,)](
            rows, rows, columns, columns, BLOCK=triton.next_power_of_2(columns), num_warps=warps
        )
    a = torch.rand(2048, 2048, device="cuda", dtype=torch.float16)
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 2),
        (128, 64, 32, 4, 3),
        (128, 128, 32, 8, 3),
        (128, 128, 64, 8, 4),
        (128, 256, 64, 8, 3),
        (32, 32, 128, 2, 5),
    ):
        grid = (2048 // m, 2048 // n)
        matmul[grid](a, a, a, 2048, 2048, 2048, m, n, k, num_warps=warps, num_stages=stages)


def library_kernels() -> None:
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        for size in (64, 500, 1024, 3000):
            a = torch.rand(size, size, device="cuda", dtype=kind)
            a @ a
    x = torch.rand(513, 1111, device="cuda")
    torch.softmax(x, 1)
    torch.nn.functional.gelu(x)
    torch.nn.functional.layer_norm(x, (1111,))
    x.sum()
    x.sum(0)
    x.argmax(1)
    x.cumsum(1)
    x.t().contiguous()
    x.sort(1)
    x[torch.randint(513, (4000,), device="cuda")]
    torch.nn.functional.conv2d(
        torch.rand(4, 16, 60, 60, device="cuda"), torch.rand(32, 16, 3, 3, device="cuda")
    )
    torch.cdist(x, x[:77])


def cuda_kernels() -> None:
    x = torch.rand(1 << 20, device="cuda")

    def launch(name: str, grid: int, block: int, n: int, shared: int = 0) -> None:
        kernel = torch.cuda._compile_kernel(CUDA, name)
        if shared >= 48 * 1024:
            kernel.set_shared_memory_config(shared)
        kernel((grid, 1, 1), (block, 1, 1), (x, n), shared_mem=shared)

    for grid, block in ((1, 32), (131, 96), (132, 1024), (133, 1024), (5000, 64), (777, 33)):
        launch("plain", grid, block, x.numel())
    for block in (64, 256, 1024):
        launch("static_shared", 400, block, x.numel())
    for shared in (4096, 30_000, 48 * 1024, 100_000, 227 * 1024):
        launch("dynamic_shared", 300, 128, x.numel(), shared)
    for block in (64, 256):
        launch("many_registers", 500, block, 3)
    launch("few_registers", 5000, 128, x.numel())
    launch("paired", 1000, 256, x.numel())
    for block in (64, 192):
        launch("barriers", 2000, 64, block)


if __name__ == "__main__":
    torch.manual_seed(0)
    triton_kernels()
    library_kernels()
    cuda_kernels()
    torch.cuda.synchronize()
