"""Run the same chain of elementwise operations eagerly, and fused into one kernel.

    python workloads/fusion.py

Run eagerly, each operation reads its inputs from memory and writes its result for the next one to
read. torch.compile fuses them into one kernel, and intermediate values stay in registers. That
saves no arithmetic, only traffic; but traffic was the whole cost.

Expect: `kernel-share` finds several kernels per step under eager and one under compiled, which takes a fraction of the time.

The ranges: warm_up, and step_N around eager and compiled. A CPU runs eager only, as compiling
takes longer there than everything else.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor

SEED = 20


def chain(x: Tensor, scale: Tensor, shift: Tensor, residual: Tensor) -> Tensor:
    """Six elementwise operations, such as stand between two GEMMs."""
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
