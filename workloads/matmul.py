"""Multiply square matrices of several sizes and types: each reaches another kernel of cuBLAS.

    python workloads/matmul.py

cuBLAS holds hundreds of kernels for the one operation and picks by size, type and alignment. A
kernel cuts the product into tiles, one a block at a time; its name says how large they are. Small
products get small tiles, so that there are enough blocks for all SMs; a side that 8 does not divide
keeps half precision from the kernels that load wide.

Expect: `kernel-share` finds a product by another kernel at each kind of size, and its tile in the name: larger tiles for larger matrices.

The ranges: step_N, around TYPE_SIZE.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count

SEED = 20
SIZES = {"cuda": (64, 500, 1024, 2049, 4096), "cpu": (16, 33)}
TYPES = {"cuda": ("float32", "float16"), "cpu": ("float32", "bfloat16")}
KNOWN_TYPES = ("float32", "float16", "bfloat16")


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


def multiply(size: int, dtype: str, steps: int, device: str) -> float:
    """The same product, `steps` times."""
    torch.manual_seed(SEED)
    a, b = torch.randn(2, size, size, device=device).to(getattr(torch, dtype))
    c = torch.empty_like(a)
    for step in range(steps):
        with annotate(f"step_{step}"), annotate(f"{dtype}_{size}"):
            torch.mm(a, b, out=c)
    return float(c.float().abs().mean())


def main() -> None:
    parser = Arguments(__doc__, steps=3)
    parser.add_argument("--sizes", type=count, nargs="+", help="sides of the matrices")
    parser.add_argument("--types", choices=KNOWN_TYPES, nargs="+", help="types of the numbers")
    given = parser.given()
    device = given.device
    for dtype in given.types or TYPES[device]:
        for size in given.sizes or SIZES[device]:
            mean = multiply(size, dtype, given.steps, device)
            print(f"{dtype} {size}: mean magnitude {mean:.4f}")


if __name__ == "__main__":
    main()
