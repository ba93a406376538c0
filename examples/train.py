"""Train a small network, with three habits that cost GPU time; `traceview report` finds them.

    traceview record examples/train.py     on a machine with a GPU and nsys
    python examples/train.py               any machine

1. Each batch is made on the main thread, while the GPU waits for the next launch.
2. It is copied from pageable memory, which blocks the CPU and is slower than a pinned copy.
3. fp32 matrix products run on the CUDA cores, beside idle tensor cores.

examples/training.sqlite.xz is a recording of it, made on an NVIDIA H200.
"""

import torch
from torch import Tensor, nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, BATCH, STEPS = (2048, 2048, 10) if DEVICE == "cuda" else (64, 16, 3)
CLASSES = 10


def annotate(name: str) -> torch.autograd.profiler.record_function:
    """An NVTX range on a GPU, which names this part of the step in the report."""
    return torch.cuda.nvtx.range(name) if DEVICE == "cuda" else torch.profiler.record_function(name)


def make_batch(step: int) -> tuple[Tensor, Tensor]:
    """Samples and their labels, made on the CPU."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, x[:, :CLASSES].argmax(dim=1)


def train() -> None:
    model = nn.Sequential(
        nn.Linear(WIDTH, 2 * WIDTH),
        nn.GELU(),
        nn.Linear(2 * WIDTH, 2 * WIDTH),
        nn.GELU(),
        nn.Linear(2 * WIDTH, CLASSES),
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(STEPS):
        with annotate(f"step_{step}"):
            with annotate("load"):
                x, y = make_batch(step)
                x, y = x.to(DEVICE), y.to(DEVICE)
            with annotate("forward"):
                loss = nn.functional.cross_entropy(model(x), y)
            with annotate("backward"):
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    train()
