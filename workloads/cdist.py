"""Compute the distances between all rows of two matrices: one line of PyTorch, many kernels.

    python workloads/cdist.py

|x − y|² = |x|² + |y|² − 2 x·y: torch.cdist computes the squared norms, appends them to the
matrices so that one GEMM gives the whole sum, clamps negative rounding errors to 0, and takes the
square root. The GEMM is the largest of these kernels.

Expect: `kernel-share` finds one GEMM with most of the time under step_#/cdist, and several small kernels beside it.

The ranges: step_N around cdist.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate

SEED = 20


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
