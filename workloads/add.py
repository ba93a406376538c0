"""Add two tensors, small and large: the simplest kernel, and what bounds it.

    python workloads/add.py

One addition per twelve bytes: a large add runs as fast as memory moves the data. A small one ends
before the GPU is up to speed: a hundred times fewer bytes do not take a hundredth of the time.

Expect: `roofline` finds the add of the large tensors memory-bound and near peak bandwidth, and that of the small ones at a few percent of peak.

The ranges: step_N around add_SIZE, which declares its bytes and FLOP.
"""  # noqa: E501 (the finding is one line, for a program to read)

import json

import torch
from arguments import Arguments, count
from ranges import annotate

SEED = 20
SIZES = {"cuda": (1 << 14, 1 << 20, 1 << 28), "cpu": (1 << 8, 1 << 12)}


def add(size: int, steps: int, device: str) -> float:
    """Add `steps` times: two reads and one write of 4 bytes per element."""
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
    parser.add_argument("--sizes", type=count, nargs="+", help="elements per tensor")
    given = parser.given()
    device = given.device
    for size in given.sizes or SIZES[device]:
        print(f"{size}: first sum {add(size, given.steps, device):.6f}")


if __name__ == "__main__":
    main()
