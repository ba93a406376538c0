"""Trains PyTorch's MNIST example on images that one loader worker prepares: eight workers."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.error_rates.findings.parts import sized, training
from benchmarks.error_rates.what_if.parts import Step


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Endless images of 28 × 28, each blurred and normalized when it is asked for."""

    def __init__(self) -> None:
        self.images = torch.randint(256, (1_000, 1, 28, 28), dtype=torch.uint8)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index % 1_000].float() / 255
        for _ in range(6):
            image = (image + image.roll(1, 2)) / 2
        return (image - 0.1307) / 0.3081, index % 10


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(5)
    workers = sized(device, 8, 2) if "workers" in remedies else 1
    # A worker that hangs after its fork ends the program, not the measurement.
    batches = iter(
        DataLoader(Images(), 64, num_workers=workers, pin_memory=device == "cuda", timeout=60)
    )
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(9_216, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).to(device)

    def loss() -> torch.Tensor:
        x, y = next(batches)
        return nn.functional.cross_entropy(model(x.to(device)), y.to(device))

    return training(loss, torch.optim.Adadelta(model.parameters()))
