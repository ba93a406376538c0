"""Run by test_apart.py in Triton's interpreter: what is mended computes what it did before."""

import torch

from tests.ptx.kernels import apart

ROWS, COLUMNS = 4, 1024
SIZE = ROWS * COLUMNS
X, Y = torch.randn(2, 2 * SIZE, generator=torch.Generator().manual_seed(0))
STARTS = torch.tensor([0, 16, 2048, 96], dtype=torch.int32)
RESULT = torch.empty(0)
CASES = {
    "magnitudes": (X, RESULT, SIZE),
    "interleave": (X, Y, RESULT),
    "backwards": (X, RESULT, SIZE),
    "scale_channels": (X, Y, RESULT, COLUMNS),
    "causal": (X, RESULT, COLUMNS),
    "sequences": (X, STARTS, RESULT),
}


def computed(kernel: str, arguments: tuple) -> torch.Tensor:
    result = torch.zeros(2 * SIZE)
    given = [result if argument is RESULT else argument for argument in arguments]
    getattr(apart, kernel)[(ROWS,)](*given, BLOCK=COLUMNS)
    return result


for name, arguments in CASES.items():
    before = computed(name, arguments)
    assert before.any(), name
    assert torch.equal(before, computed(f"{name}_mended", arguments)), name
print("the same")
