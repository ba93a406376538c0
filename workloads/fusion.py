"""The same chain of elementwise operations twice: as PyTorch runs it, and fused into one kernel.

    python workloads/fusion.py

Each operation by itself reads its inputs from memory and writes its result there, for the next one
to read it again. torch.compile makes one kernel of them all: what is between them never leaves the
registers. No arithmetic is saved, only traffic, and that was all it took.

Expect: `kernel-share` finds several kernels a step under eager and one under compiled, which takes a fraction of the time.

The ranges: warm_up, and step_N around eager and compiled. A CPU runs eager alone, as compiling
takes longer there than all else.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count
from torch import Tensor

SEED = 20


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


def chain(x: Tensor, scale: Tensor, shift: Tensor, residual: Tensor) -> Tensor:
    """Six operations on every element: such as stand between two matrix products."""
    return torch.sigmoid(x * scale + shift) * x * 0.5 + residual


def main() -> None:
    parser = Arguments(__doc__, steps=5)
    parser.add_argument("--rows", type=count, help="default: 16384 on a GPU, else 8")
    parser.add_argument("--columns", type=count, help="default: 4096 on a GPU, else 16")
    given = parser.given()
    device = given.device
    rows = given.rows or (16384 if device == "cuda" else 8)
    columns = given.columns or (4096 if device == "cuda" else 16)
    torch.manual_seed(SEED)
    x, residual = torch.randn(2, rows, columns, device=device)
    scale, shift = torch.randn(2, columns, device=device)
    ways = {"eager": chain}
    if device == "cuda":
        ways["compiled"] = torch.compile(chain)
    y = x
    with annotate("warm_up"):
        for way in ways.values():
            way(x, scale, shift, residual)
    for step in range(given.steps):
        with annotate(f"step_{step}"):
            for name, way in ways.items():
                with annotate(name):
                    y = way(x, scale, shift, residual)
    print(f"{', '.join(ways)}: sum {float(y.sum()):.3f}")


if __name__ == "__main__":
    main()
