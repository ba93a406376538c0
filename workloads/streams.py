"""Make GPU work wait for other GPU work: for a copy, and for another stream.

    python workloads/streams.py

In every step a batch is copied to the GPU on its own stream, and the main stream waits for it
through an event. Then both streams compute, and the main stream waits for the other one. Last, a
batch is copied from pageable memory, which the CPU has to stage first. Everything is launched in
time: no gap is launch-late.

Expect: `gpu-idle` finds copy-wait for the kernel behind the event and for the pageable copy, and dependency for the kernel that waits for the other stream.

The ranges: step_N around upload, compute, join and pageable.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor

SEED = 20


def work(x: Tensor, times: int) -> Tensor:
    """Launch some kernels in a row."""
    for _ in range(times):
        x = torch.tanh(x) * 1.01
    return x


def on_gpu(elements: int, steps: int) -> float:
    """Run on two streams that wait for each other through events; the CPU does not wait."""
    main, other = torch.cuda.current_stream(), torch.cuda.Stream()
    pinned = torch.randn(elements).pin_memory()
    pageable = torch.randn(elements)
    batch = torch.empty(elements, device="cuda")
    late = torch.empty(elements, device="cuda")
    side = torch.randn(elements, device="cuda")
    # Warm up both streams before the first step, to load code and allocate memory.
    other.wait_stream(main)
    with torch.cuda.stream(other):
        side = work(side, 2)
    total = work(batch.zero_(), 2).sum()
    main.wait_stream(other)
    for step in range(steps):
        with annotate(f"step_{step}"):
            other.wait_stream(main)
            with annotate("upload"), torch.cuda.stream(other):
                batch.copy_(pinned, non_blocking=True)
            main.wait_stream(other)
            with annotate("compute"):
                total = total + work(batch, 4).sum()
                with torch.cuda.stream(other):
                    side = work(side, 40)
            with annotate("join"):
                main.wait_stream(other)
                total = total + side.mean()
            with annotate("pageable"):
                late.copy_(pageable)
    return float(total + late.sum())


def on_cpu(elements: int, steps: int) -> float:
    """Compute the same sums without streams."""
    batch, side = torch.randn(elements), torch.randn(elements)
    total = torch.zeros(())
    for step in range(steps):
        with annotate(f"step_{step}"):
            side = work(side, 40)
            total = total + work(batch, 4).sum() + side.mean()
    return float(total)


def main() -> None:
    parser = Arguments(__doc__, steps=6)
    parser.add_argument("--elements", type=count, help="elements per batch")
    given = parser.given()
    device = given.device
    torch.manual_seed(SEED)
    run, elements = (on_gpu, 1 << 24) if device == "cuda" else (on_cpu, 64)
    print(f"total {run(given.elements or elements, given.steps):.3f}")


if __name__ == "__main__":
    main()
