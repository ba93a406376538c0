"""Runs 24 blocks of four layers at batch 8, launched one by one: a CUDA graph."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Step, captured


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(10)
    width = 512
    blocks = [
        nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )
        for _ in range(24)
    ]
    model = nn.Sequential(*blocks).to(device)
    x = torch.randn(8, width, device=device)

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return model(x).square().mean()

    return captured(forward, device) if "graph" in remedies else forward
