"""Run by test_unproven.py in Triton's interpreter: what is advised computes what was computed."""

import torch

from tests.ptx.kernels import unproven

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*size: int) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in any order."""
    return torch.randint(-9, 9, size, generator=GENERATOR).float()


def result(kernel: str, size: int, grid: int, x: torch.Tensor, *arguments: int) -> torch.Tensor:
    y = torch.zeros(size)
    getattr(unproven, kernel)[(grid,)](x, y, *arguments)
    return y


X = numbers(64, 32)
for each in (4, 16, 32):
    arguments = (64, 2, X, 32, each, 32)
    assert torch.equal(result("columns", *arguments), result("columns_mended", *arguments))
for n in (100, 128, 511, 512):
    arguments = (4 * n, 4, numbers(4 * n), n, -1, 512)
    before = result("chosen", *arguments)
    assert before.any()
    assert torch.equal(before, result("chosen_mended", *arguments))
for bins in (8, 32):
    ids = torch.randint(0, bins, (1024,), generator=GENERATOR, dtype=torch.int32)
    arguments = (bins * 4, 4, ids, 4, bins, 256)
    before = result("counted", *arguments)
    assert before.sum() == 1024
    assert torch.equal(before, result("counted_mended", *arguments))
# A padded pitch: the same rows in wider ones.
for size, padded in ((1023, 1024), (777, 780), (30, 32)):
    x = numbers(3, size)
    wide = torch.nn.functional.pad(x, (0, padded - size))
    before = result("rows", x.numel(), 3, x, size, size, 1024).view(3, size)
    after = result("rows", wide.numel(), 3, wide, padded, padded, 1024).view(3, padded)
    assert before.any()
    assert torch.equal(before, after[:, :size])
print("the same")
