"""GELU as a Triton kernel, on as many elements as the command line says.

traceview ptx examples/gelu.py               where no GPU is: which code would run?
traceview ptx examples/gelu.py -- 1048576    the same for a size that is divisible by 16
python examples/gelu.py                      launch it, which needs a GPU
"""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y, mask=inside)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """0.5 · x · (1 + erf(x / √2)) of a contiguous tensor on a GPU."""
    y = torch.empty_like(x)
    gelu_kernel[triton.cdiv(x.numel(), 1024),](x, y, x.numel(), BLOCK=1024)
    return y


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_003
    gelu(torch.randn(size, device="cuda"))
