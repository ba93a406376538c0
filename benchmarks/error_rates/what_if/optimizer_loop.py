"""Trains many small layers, each updated on its own: a fused optimizer, no zeroing, and both."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step


def network(device: str) -> Any:
    layers: list[Any] = []
    for _ in range(24):
        layers += [nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU()]
    return nn.Sequential(*layers).to(device)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(6)
    model = network(device)
    if "fused" in remedies:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    rows = 2_048 if device == "cuda" else 32
    x, y = torch.randn(2, rows, 512, device=device)

    def step() -> torch.Tensor:
        if "to_none" in remedies:
            optimizer.zero_grad()
        else:
            model.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def alone(device: str) -> Alone:
    weights = list(network(device).parameters())
    for each in weights:
        each.grad = torch.randn_like(each)
    gradients = [torch.randn_like(each) for each in weights]

    def zero() -> None:
        for each in weights:
            each.grad.zero_()

    def accumulate() -> None:
        for each, gradient in zip(weights, gradients, strict=True):
            each.grad.add_(gradient)

    updates = (
        torch.optim.AdamW(weights, foreach=False).step,
        torch.optim.AdamW(weights, fused=True).step,
    )
    return {"adamw_fused": updates, "zeros": (zero, None), "sums": (accumulate, None)}
