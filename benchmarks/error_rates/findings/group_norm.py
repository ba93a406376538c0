"""Trains a residual network with GroupNorm in bf16 and NCHW: channels_last, which wins nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.findings.parts import adamw, sized, training
from benchmarks.error_rates.what_if.parts import Step


class Residual(nn.Module):
    """Two convolutions, each after a normalization and a SiLU, as in diffusion's UNets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(12)
    images, width, size, depth = sized(device, (16, 256, 64, 6), (2, 64, 16, 2))
    layers = [nn.Conv2d(3, width, 3, padding=1), *(Residual(width) for _ in range(depth))]
    model = nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1)).to(device).bfloat16()
    x, y = torch.randn(2, images, 3, size, size, device=device).bfloat16()
    if "channels_last" in remedies:
        model = model.to(memory_format=torch.channels_last)
        x, y = (each.to(memory_format=torch.channels_last) for each in (x, y))

    def loss() -> Any:
        return nn.functional.mse_loss(model(x), y)

    return training(loss, adamw(model.parameters()))
