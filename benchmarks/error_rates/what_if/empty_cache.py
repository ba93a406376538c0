"""Empties the caching allocator after every step of a loop that the GPU limits: not emptied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(9)
    width, rows = (2_048, 2_048) if device == "cuda" else (64, 16)
    layers: list[Any] = []
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.SiLU()]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, rows, width, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if "kept" not in remedies:
            torch.cuda.empty_cache()
        return loss.detach()

    return step


def alone(_: str) -> Alone:
    return {}
