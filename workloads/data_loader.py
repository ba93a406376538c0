"""Upload the batches of a DataLoader from pageable memory, and from pinned memory.

    python workloads/data_loader.py

The GPU's copy engine reads only pinned memory. For pageable memory the CPU first copies the bytes
to a pinned buffer, and the call blocks meanwhile, even with non_blocking=True. pin_memory=True
pins beforehand: on its own thread if there are workers; here there are none, and `load` takes
longer.

Expect: `memory-copies` finds the copies of pageable memory slower than those of pinned memory, and that they block the CPU; `gpu-idle` finds the GPU idle in pinned/batch_#/load, which pins.

The ranges: pageable and pinned, each around batch_N with load, upload and compute.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

SEED = 20


class Batches(Dataset[Tensor]):
    """A dataset of whole synthetic batches."""

    def __init__(self, number: int, elements: int) -> None:
        torch.manual_seed(SEED)
        self.made = torch.randn(number, elements)

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> Tensor:
        return self.made[index]


def epoch(batches: "DataLoader[Tensor]", weights: Tensor) -> Tensor:
    """Run through all batches once."""
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
    parser.add_argument(
        "--elements", type=count, help="elements per batch; default: 2^22 on a GPU, else 64"
    )
    given = parser.given()
    device = given.device
    samples = Batches(given.steps, given.elements or (1 << 22 if device == "cuda" else 64))
    weights = torch.ones(samples.made.shape[1], device=device)
    # On a CPU nothing is uploaded, so there is nothing to pin.
    for name, pinned in (("pageable", False), ("pinned", device == "cuda")):
        batches = DataLoader(samples, batch_size=None, pin_memory=pinned)
        with annotate(name):
            total = epoch(batches, weights)
        print(f"{name}: total {float(total):.6f}")


if __name__ == "__main__":
    main()
