"""Kernels that are given tuples: of pointers, of what has names, and of what is known or not."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Pair(NamedTuple):
    """Where one reads and where one writes."""

    source: torch.Tensor
    target: torch.Tensor


@triton.jit
def scaled(pairs, steps, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    for k in tl.static_range(len(pairs)):
        x = tl.load(pairs[k].source + offsets * steps[0], mask=inside)
        tl.store(pairs[k].target + offsets, x * steps[1], mask=inside)


def tensors(n: int, dtype: torch.dtype) -> Pair:
    return Pair(*(torch.ones(n, dtype=dtype, device="cuda") for _ in range(2)))


if __name__ == "__main__":
    for n, dtype in ((4096, torch.float32), (4100, torch.float16)):
        scaled[(4,)]((tensors(n, dtype), tensors(n, dtype)), (1, 7), n, 1024)
    aligned, late = tensors(4096, torch.float32), tensors(4097, torch.float32)
    scaled[(4,)]((aligned, Pair(late.source[1:], late.target)), (1, 7), 4096, 1024)
