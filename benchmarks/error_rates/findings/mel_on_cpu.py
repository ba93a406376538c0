"""Trains on mel spectrograms computed on the CPU: on the GPU, and by loader workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.error_rates.findings.parts import adamw, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


class Mel(nn.Module):
    """Logarithms of the power in mel-like bands: (clips, samples) to (clips, 1, bands, frames)."""

    def __init__(self, bands: int = 80, size: int = 512) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("filters", torch.rand(bands, size // 2 + 1) / size)

    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        frequencies = torch.stft(
            waves, self.size, hop_length=160, window=self.window, return_complex=True
        )
        power = frequencies.abs().square()
        return (self.filters @ power).clamp(min=1e-6).log().unsqueeze(1)


class Clips(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Endless batches of noise and their classes, as spectrograms if `mel`."""

    def __init__(self, clips: int, samples: int, mel: nn.Module | None) -> None:
        self.waves, self.mel = torch.randn(2, clips, samples), mel
        self.classes = torch.randint(35, (2, clips))

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        waves = self.waves[index % 2]
        return (self.mel(waves) if self.mel else waves), self.classes[index % 2]


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(16)
    tf32()
    clips, samples = sized(device, (64, 64_000), (2, 4_000))
    mel = Mel()
    batches: Any = Clips(clips, samples, mel if "workers" in remedies else None)
    if "workers" in remedies:
        options = {"num_workers": sized(device, 8, 2), "timeout": 60}
        pinned = device == "cuda"
        batches = DataLoader(batches, batch_size=None, pin_memory=pinned, **options)
    elif "on_gpu" in remedies:
        mel = mel.to(device)
    layers: list[nn.Module] = []
    for inputs in (1, 64, 64, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 35))
    model = model.to(device)
    waiting = iter(batches)  # the loader draws a random number: after the weights

    def loss() -> Any:
        x, y = next(waiting)
        if "on_gpu" in remedies:
            x = mel(x.to(device))
        elif "workers" not in remedies:
            x = mel(x)
        return nn.functional.cross_entropy(model(x.to(device)), y.to(device))

    return training(loss, adamw(model.parameters()))
