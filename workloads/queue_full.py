"""Launch far more than the GPU's queue holds, behind one long kernel.

    python workloads/queue_full.py

The CPU launches a kernel in a few µs. The queue of a stream holds about a thousand of them; then
the launch call itself waits until the GPU has finished one. Such a call looks expensive but is
not: the GPU has more than enough to do, and launching faster would gain nothing.

Expect: `run-ahead` says queue-full, and `launch-overhead` counts the calls' waiting as queue_full_ns, not as overhead.

The ranges: step_N around long_kernel and short_kernels.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate

SEED = 20


def run(dim: int, launches: int, elements: int, steps: int, device: str) -> float:
    """Run one GEMM of `dim` × `dim` matrices per step, and `launches` additions behind it."""
    torch.manual_seed(SEED)
    matrix = torch.randn(dim, dim, device=device)
    product = torch.empty_like(matrix)
    small = torch.zeros(elements, device=device)
    for step in range(steps):
        with annotate(f"step_{step}"):
            with annotate("long_kernel"):
                torch.mm(matrix, matrix, out=product)
            with annotate("short_kernels"):
                for _ in range(launches):
                    small.add_(1.0)
    # Waits for everything, so that the recording is complete.
    return float(small[0])


def main() -> None:
    parser = Arguments(__doc__, steps=4)
    parser.add_argument("--launches", type=count, help="short kernels per step")
    given = parser.given()
    device = given.device
    # On a GPU an addition takes some 20 µs here, several times what its launch takes.
    dim, launches, elements = (12288, 1500, 1 << 22) if device == "cuda" else (64, 20, 16)
    launches = given.launches or launches
    total = run(dim, launches, elements, given.steps, device)
    print(f"{total:.0f} additions")


if __name__ == "__main__":
    main()
