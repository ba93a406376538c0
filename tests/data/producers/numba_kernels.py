"""Kernels in numba-cuda 0.30.4 (NVVM of CUDA 13.5), compiled by it without a GPU."""

from pathlib import Path

from numba import cuda, types


def twice(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i] * types.float32(2)


def every_other(x, y, step):
    i = cuda.grid(1)
    y[i] = x[i * step]


if __name__ == "__main__":
    array = types.float32[::1]
    for function in (twice, every_other):
        ptx, _ = cuda.compile(
            function,
            (array, array, types.int32),
            cc=(9, 0),
            device=False,
            lineinfo=True,
            abi="numba",
            output="ptx",
        )
        Path(f"numba_cuda-0.30.4-{function.__name__}-sm90.ptx").write_text(ptx)
