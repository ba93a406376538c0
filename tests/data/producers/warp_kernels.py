"""Kernels in Warp 1.19.0, compiled ahead of time without a GPU: PYTHON warp_kernels.py."""

import sys
from pathlib import Path

import warp as wp

wp.config.lineinfo = True
wp.config.line_directives = True
wp.config.enable_backward = False


@wp.func
def gelu(x: wp.float32) -> wp.float32:
    return 0.5 * x * (1.0 + wp.erf(x * 0.70710678))


@wp.kernel
def gelu_kernel(x: wp.array(dtype=wp.float32), y: wp.array(dtype=wp.float32)):
    i = wp.tid()
    y[i] = gelu(x[i])


@wp.kernel
def scale_vec4(x: wp.array(dtype=wp.vec4), y: wp.array(dtype=wp.vec4), a: wp.float32):
    i = wp.tid()
    y[i] = a * x[i]


if __name__ == "__main__":
    folder = Path("warp-out")
    wp.compile_aot_module(sys.modules["__main__"], arch=90, module_dir=folder, use_ptx=True)
    (made,) = folder.glob("*.ptx")
    made.rename("warp-1.19.0-sm90.ptx")
