"""Make the CPU wait for the GPU in six ways, each on its own line.

    python workloads/sync_sites.py

Every step asks the GPU for a result in six ways. Each way stops the CPU until the queue is empty,
and then the GPU until the CPU has filled it again: six times a step where once would do. A report
names each of the lines below, with its own share of the time in which the GPU then runs dry. The
comment behind a line says what the CPU waits for there.

Expect: `sync-stalls` names each line that waits, and gives it its own share of the idle time.

The ranges: step_N. Without a GPU the program runs, and nothing waits.
"""

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor

SIZE, STEPS = 2048, 8


def work(x: Tensor) -> Tensor:
    """Keep the GPU busy for longer than the CPU takes to launch the work."""
    for _ in range(4):
        x = torch.tanh(x @ x)
    return x


def step(x: Tensor, mask: Tensor, batch: Tensor) -> float:
    """One wait per line; the comment names what the CPU waits for."""
    total = work(x).sum().item()  # a number
    host = work(x).cpu()  # a whole tensor
    if work(x).mean() > 2:  # the truth of a tensor
        total += 1
    rows = (work(x) * mask).nonzero()  # how many there are
    x = work(x) + batch.to(x.device)  # the upload of pageable memory
    if x.is_cuda:
        torch.cuda.synchronize()  # everything
    return total + len(rows) + host.numel()


def main() -> None:
    parser = Arguments(__doc__, steps=STEPS)
    parser.add_argument("--size", type=count, help=f"side of the matrices; {SIZE} on a GPU")
    given = parser.given()
    device = given.device
    # Without a GPU nothing waits, so small matrices do as well.
    size = given.size or (SIZE if device == "cuda" else 128)
    torch.manual_seed(20)
    x = torch.randn(size, size, device=device) / size**0.5
    mask = torch.rand_like(x) > 0.5
    batch = torch.randn(size, size)
    for number in range(given.steps):
        with annotate(f"step_{number}"):
            step(x, mask, batch)


if __name__ == "__main__":
    main()
