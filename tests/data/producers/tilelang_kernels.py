"""Kernels in TileLang 0.1.15, whose CUDA C++ is compiled by nvcc of CUDA 13.5 without a GPU."""

from pathlib import Path

import tilelang.language as T  # noqa: N812 (as all of its documentation)
from tilelang import tvm
from tilelang.engine import lower

N, BLOCK, STEP = 1 << 20, 4096, 512


@T.prim_func
def scale_tile(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
    with T.Kernel(N // BLOCK, threads=128) as block:
        tile = T.alloc_shared((STEP,), "float32")
        for step in T.Pipelined(BLOCK // STEP, num_stages=3):
            T.copy(X[block * BLOCK + step * STEP], tile)
            for i in T.Parallel(STEP):
                Y[block * BLOCK + step * STEP + i] = tile[i] * 2.0


if __name__ == "__main__":
    # nvcc -std=c++17 -ptx -lineinfo -arch=sm_80 -I tilelang/src -I .../cutlass/include
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    with target:
        made = lower(scale_tile, target=target, enable_device_compile=False)
    Path("tilelang_scale.cu").write_text(made.kernel_source)
