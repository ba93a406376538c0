"""Trains an MLP in fp32, 16 layers of 1,024, and prints its loss in every step: not printed."""

from __future__ import annotations

from collections.abc import Collection
from io import StringIO

import torch

from benchmarks.error_rates.findings.parts import mlp, sized, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(9)
    width, rows = sized(device, (1_024, 2_048), (64, 16))
    model = mlp(width, 16, device)
    x, y = torch.randn(2, rows, width, device=device)
    log = StringIO()

    def objective() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(x), y)

    train = training(objective, torch.optim.SGD(model.parameters(), lr=1e-3))

    def step() -> torch.Tensor:
        loss = train()
        if "silent" not in remedies:
            print(f"loss {loss.item():.6f}", file=log)
        return loss

    return step
