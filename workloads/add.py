"""Add two tensors, small ones and large ones: the simplest kernel there is, and what bounds it.

    python workloads/add.py

One addition for twelve bytes: a large sum runs as fast as the memory moves it. A small one is over
before the GPU has begun in earnest: a hundred times fewer bytes do not take a hundredth of the time.

Expect: `roofline` finds the sum of the large tensors bound by memory, near its peak, and that of the small ones at a few per cent of it.

The ranges: step_N, around add_SIZE, which declares its bytes and FLOP.
"""  # noqa: E501 (the finding is one line, for a program to read)

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count

SEED = 20
SIZES = {"cuda": (1 << 14, 1 << 20, 1 << 28), "cpu": (1 << 8, 1 << 12)}


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    if torch.version.cuda:
        # To torch the text is a format, and ours holds braces.
        return lambda text: torch.cuda.nvtx.range("{}", text)
    return lambda _: nullcontext()


annotate = annotation()


def add(size: int, steps: int, device: str) -> float:
    """Two reads and a write of 4 bytes for every sum."""
    torch.manual_seed(SEED)
    x, y = torch.randn(2, size, device=device)
    z = torch.empty_like(x)
    work = json.dumps({"bytes": 12 * size, "flop": size, "kind": "fp32"})
    for step in range(steps):
        with annotate(f"step_{step}"), annotate(f"add_{size} {work}"):
            torch.add(x, y, out=z)
    return float(z[0])


def main() -> None:
    parser = Arguments(__doc__, steps=5)
    parser.add_argument("--sizes", type=count, nargs="+", help="numbers in a tensor")
    given = parser.given()
    device = given.device
    for size in given.sizes or SIZES[device]:
        print(f"{size}: first sum {add(size, given.steps, device):.6f}")


if __name__ == "__main__":
    main()
