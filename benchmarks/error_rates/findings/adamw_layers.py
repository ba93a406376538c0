"""Trains 24 layers with PyTorch's default AdamW, which is not fused: fused=True."""

from __future__ import annotations

from collections.abc import Collection

import torch

from benchmarks.error_rates.findings.parts import mlp, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(6)
    tf32()
    width, rows = sized(device, (2_048, 4_096), (64, 16))
    model = mlp(width, 24, device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, fused=True if "fused" in remedies else None
    )
    x, y = torch.randn(2, rows, width, device=device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(x), y)

    return training(loss, optimizer)
