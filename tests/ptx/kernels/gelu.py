"""Elementwise GELU, launched for a length that is divisible by 16 and for one that is not."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = 0.5 * x * (1 + tl.math.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y, mask=mask)


def gelu(x):
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK_SIZE=1024, num_warps=4)
    return y


if __name__ == "__main__":
    for n in (4096, 4096, 4097):
        x = torch.randn(n, device="cuda")
        print("GELU agrees:", torch.allclose(gelu(x), torch.nn.functional.gelu(x), atol=1e-5))
