"""Work that waits for other work: behind a copy, and behind another stream.

    python workloads/streams.py

In every step a batch is copied to the GPU on a stream of its own, and the main stream waits for it
through an event; then both compute, and the main stream waits for the other one. Last, a batch is
copied out of ordinary (pageable) memory, which the CPU has to move aside first. All of it was
asked for in time: no launch is late.

Expect: `gpu-idle` finds copy-wait for the kernel behind the event and for the pageable copy, and dependency for the kernel that waits for the other stream.

The ranges: step_N, around upload, compute, join and pageable.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count
from torch import Tensor

SEED = 20


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


def work(x: Tensor, times: int) -> Tensor:
    """Some kernels in a row."""
    for _ in range(times):
        x = torch.tanh(x) * 1.01
    return x


def on_gpu(elements: int, steps: int) -> float:
    """Two streams that wait for each other through events; the CPU waits for nothing."""
    main, other = torch.cuda.current_stream(), torch.cuda.Stream()
    pinned = torch.randn(elements).pin_memory()
    pageable = torch.randn(elements)
    batch = torch.empty(elements, device="cuda")
    late = torch.empty(elements, device="cuda")
    side = torch.randn(elements, device="cuda")
    # Both streams work before the first step: code is loaded, memory is there.
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
    """The same sums without streams."""
    batch, side = torch.randn(elements), torch.randn(elements)
    total = torch.zeros(())
    for step in range(steps):
        with annotate(f"step_{step}"):
            side = work(side, 40)
            total = total + work(batch, 4).sum() + side.mean()
    return float(total)


def main() -> None:
    parser = Arguments(__doc__, steps=6)
    parser.add_argument("--elements", type=count, help="numbers in a batch")
    given = parser.given()
    device = given.device
    torch.manual_seed(SEED)
    run, elements = (on_gpu, 1 << 24) if device == "cuda" else (on_cpu, 64)
    print(f"total {run(given.elements or elements, given.steps):.3f}")


if __name__ == "__main__":
    main()
