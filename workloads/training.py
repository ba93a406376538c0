"""Train a small network on batches from a DataLoader, with an NVTX range around every part.

    python workloads/training.py               batches are collated by worker processes, in pinned memory
    python workloads/training.py --workers 0   the training process collates them itself
    python workloads/training.py --slow 5      batch 5 of each epoch takes long to prepare

PyTorch runs the backward pass on autograd's thread, which has no ranges of its own; its launches
belong to the `backward` that is open on the main thread. Copies from pinned memory are
asynchronous: the CPU goes on while they run.

Expect: `kernel-share` counts the kernels of autograd's thread under backward, as inferred, and `steps` names the slow batch.

The ranges, outermost first: define_model, and epoch_N around batch_N with load, upload, forward,
backward and optimizer.
"""  # noqa: E501 (the finding is one line, for a program to read)

import argparse
import time

import torch
from arguments import Arguments, count, place
from ranges import annotate
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SEED = 20
CLASSES = 10


class Samples(Dataset[tuple[Tensor, int]]):
    """Synthetic samples. The first ones of batch `slow` take 50 ms to read."""

    def __init__(self, number: int, dim: int, batch: int, slow: int | None) -> None:
        self.number, self.dim = number, dim
        self.late = None if slow is None else slow * batch

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == self.late:
            time.sleep(0.05)
        generator = torch.Generator().manual_seed(SEED + index)
        return torch.randn(self.dim, generator=generator), index % CLASSES


def network(dim: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(dim, 2 * dim),
        nn.LayerNorm(2 * dim),
        nn.GELU(),
        nn.Linear(2 * dim, 2 * dim),
        nn.GELU(),
        nn.Linear(2 * dim, CLASSES),
    )


def train(given: argparse.Namespace, device: str) -> float:
    """Train for some epochs and return the last loss."""
    torch.manual_seed(SEED)
    with annotate("define_model"):
        model = network(given.dim).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = Samples(given.batches * given.batch, given.dim, given.batch, given.slow)
    batches = DataLoader(
        samples,
        given.batch,
        num_workers=given.workers,
        pin_memory=device == "cuda",
        persistent_workers=given.workers > 0,
    )
    loss = torch.zeros(())
    for epoch in range(given.epochs):
        with annotate(f"epoch_{epoch}"):
            loss = train_epoch(model, optimizer, batches, device)
    # The only value that is read, after all work has been launched.
    return loss.item()


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: "DataLoader[tuple[Tensor, int]]",
    device: str,
) -> Tensor:
    loss = torch.zeros(())
    waiting = iter(batches)
    for number in range(len(batches)):
        with annotate(f"batch_{number}"):
            with annotate("load"):
                x, y = next(waiting)
            with annotate("upload"):
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with annotate("forward"):
                loss = nn.functional.cross_entropy(model(x), y)
            with annotate("backward"):
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("--dim", type=count, help="default: 2048 on a GPU, else 64")
    parser.add_argument("--batch", type=count, help="default: 512 on a GPU, else 16")
    parser.add_argument(
        "--steps", "--batches", dest="batches", type=count, default=8, help="batches per epoch"
    )
    parser.add_argument("--epochs", type=count, default=2)
    parser.add_argument(
        "--workers", type=place, default=2, help="worker processes that prepare batches"
    )
    parser.add_argument("--slow", type=place, help="the slow batch of each epoch")
    given = parser.given()
    if given.slow is not None and given.slow >= given.batches:
        parser.error(
            f"argument --slow: of {given.batches} batches, the last is {given.batches - 1}"
        )
    device = given.device
    given.dim = given.dim or (2048 if device == "cuda" else 64)
    given.batch = given.batch or (512 if device == "cuda" else 16)
    print(f"loss {train(given, device):.6f}")


if __name__ == "__main__":
    main()
