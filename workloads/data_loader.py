"""Upload the batches of a DataLoader out of pageable memory, and out of pinned memory.

    python workloads/data_loader.py

The GPU's copy engine reads only pinned memory. Out of ordinary, pageable memory the CPU first moves
the bytes there, and the call lasts as long, even with non_blocking=True. pin_memory=True does that
beforehand: with workers, on a thread of its own; here, with none, `load` takes more than it saves.

Expect: `memory-copies` finds the copies of pageable memory slower than those of pinned memory, and that they hold the CPU; `gpu-idle` finds the GPU idle in pinned/batch_#/load, which pins.

The ranges: pageable and pinned, each around batch_N, with load, upload and compute.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from arguments import Arguments, count
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

SEED = 20


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


class Batches(Dataset[Tensor]):
    """Whole batches, made up beforehand."""

    def __init__(self, number: int, elements: int) -> None:
        torch.manual_seed(SEED)
        self.made = torch.randn(number, elements)

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> Tensor:
        return self.made[index]


def epoch(batches: "DataLoader[Tensor]", weights: Tensor) -> Tensor:
    """Go through all batches once."""
    total = torch.zeros((), device=weights.device)
    waiting = iter(batches)
    for number in range(len(batches)):
        with annotate(f"batch_{number}"):
            with annotate("load"):
                batch = next(waiting)
            with annotate("upload"):
                x = batch.to(weights.device, non_blocking=True)
            with annotate("compute"):
                total = total + torch.tanh(x * weights).mean()
    return total


def main() -> None:
    parser = Arguments(__doc__, steps=8, of="batches; ")
    parser.add_argument("--elements", type=count, help="of a batch: 2^22 on a GPU, else 64")
    given = parser.given()
    device = given.device
    samples = Batches(given.steps, given.elements or (1 << 22 if device == "cuda" else 64))
    weights = torch.ones(samples.made.shape[1], device=device)
    # On a CPU nothing is uploaded, and there is nothing to pin for.
    for name, pinned in (("pageable", False), ("pinned", device == "cuda")):
        batches = DataLoader(samples, batch_size=None, pin_memory=pinned)
        with annotate(name):
            total = epoch(batches, weights)
        print(f"{name}: total {float(total):.6f}")


if __name__ == "__main__":
    main()
