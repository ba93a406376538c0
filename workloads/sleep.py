"""Let the CPU sleep between two pieces of GPU work, so that the GPU idles.

    python workloads/sleep.py

Nothing waits for the GPU here, and the GPU waits for no result. The CPU is simply busy elsewhere,
as it would be in a data loader, a tokenizer or a log file. Nothing is queued, so nothing runs.

Expect: `gpu-idle` finds launch-late idle while the CPU was outside CUDA in step_#/sleep, most of the time of every step.

The ranges: step_N around work and sleep.
"""  # noqa: E501 (the finding is one line, for a program to read)

import time

import torch
from arguments import Arguments, count, milliseconds
from ranges import annotate

SEED = 20


def run(size: int, steps: int, milliseconds: float, device: str) -> float:
    """Run four GEMMs per step, then sleep."""
    torch.manual_seed(SEED)
    x = torch.randn(size, size, device=device) / size**0.5
    for step in range(steps):
        with annotate(f"step_{step}"):
            with annotate("work"):
                for _ in range(4):
                    x = torch.tanh(x @ x)
            with annotate("sleep"):
                time.sleep(milliseconds / 1000)
    return float(x.sum())


def main() -> None:
    parser = Arguments(__doc__, steps=8)
    parser.add_argument("--size", type=count, help="default: 2048 on a GPU, else 64")
    parser.add_argument("--milliseconds", type=milliseconds, default=20, help="how long it sleeps")
    given = parser.given()
    device = given.device
    size = given.size or (2048 if device == "cuda" else 64)
    print(f"sum {run(size, given.steps, given.milliseconds, device):.6f}")


if __name__ == "__main__":
    main()
