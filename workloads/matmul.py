"""Multiply square matrices of several sizes and types; cuBLAS picks a kernel for each.

    python workloads/matmul.py

cuBLAS holds hundreds of GEMM kernels and picks one by size, data type and alignment. A kernel cuts
the result into tiles, one per block at a time; its name gives their size. Small GEMMs get small
tiles, so that there are enough blocks for all SMs. A size that is not divisible by 8 rules out the
half-precision kernels with wide loads.

Expect: `kernel-share` finds another GEMM kernel for each range of sizes, with its tile in the name: larger tiles for larger matrices.

The ranges: step_N around TYPE_SIZE.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate

SEED = 20
SIZES = {"cuda": (64, 500, 1024, 2049, 4096), "cpu": (16, 33)}
TYPES = {"cuda": ("float32", "float16"), "cpu": ("float32", "bfloat16")}
KNOWN_TYPES = ("float32", "float16", "bfloat16")


def multiply(size: int, dtype: str, steps: int, device: str) -> float:
    """Run the same GEMM `steps` times."""
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
    parser.add_argument("--types", choices=KNOWN_TYPES, nargs="+", help="data types")
    given = parser.given()
    device = given.device
    for dtype in given.types or TYPES[device]:
        for size in given.sizes or SIZES[device]:
            mean = multiply(size, dtype, given.steps, device)
            print(f"{dtype} {size}: mean magnitude {mean:.4f}")


if __name__ == "__main__":
    main()
