"""The distances between all rows of two matrices: one line of PyTorch, and what it is made of.

    python workloads/cdist.py

|x − y|² = |x|² + |y|² − 2 x·y: torch.cdist forms the squares and their sums, puts them beside the
matrices so that one product gives all of it, cuts off what rounding made negative, and takes the
root. One call, many kernels; the product is the largest of them.

Expect: `kernel-share` finds one matrix product with most of the time under step_#/cdist, and several small kernels beside it.

The ranges: step_N, around cdist.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count

SEED = 20


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


def main() -> None:
    parser = Arguments(__doc__, steps=5)
    parser.add_argument("--size", type=count, help="rows and columns: 2048 on a GPU, else 64")
    given = parser.given()
    device = given.device
    size = given.size or (2048 if device == "cuda" else 64)
    torch.manual_seed(SEED)
    x, y = torch.randn(2, size, size, device=device)
    distances = x
    for step in range(given.steps):
        with annotate(f"step_{step}"), annotate("cdist"):
            distances = torch.cdist(x, y)
    print(f"mean distance {float(distances.mean()):.4f}")


if __name__ == "__main__":
    main()
