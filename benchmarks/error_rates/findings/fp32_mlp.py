"""Trains an MLP in plain fp32, 16 layers of 2,048, batches of 4,096: TF32."""

from __future__ import annotations

from collections.abc import Collection

import torch

from benchmarks.error_rates.findings.parts import mlp, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(1)
    width, rows = sized(device, (2_048, 4_096), (64, 16))
    model = mlp(width, 16, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, rows, width, device=device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(x), y)

    train = training(loss, optimizer)

    def step() -> torch.Tensor:
        tf32("tf32" in remedies)
        return train()

    return step
