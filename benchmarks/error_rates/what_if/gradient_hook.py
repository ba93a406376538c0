"""Logs its history from a hook in the middle of the backward pass: without the hook."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step


class History:
    """The last 280 steps as JSON, for a page that polls it."""

    def __init__(self) -> None:
        self.steps: deque[dict[str, float]] = deque(maxlen=280)
        self.text = ""
        for number in range(280):
            self.add(number)

    def add(self, number: int) -> None:
        metrics = {f"metric_{i}": number / (i + 3) for i in range(12)}
        self.steps.append({"number": number, **metrics})

    def write(self, _: Any) -> None:
        self.add(len(self.text))
        self.text = json.dumps(list(self.steps))


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(7)
    width, rows = (2_048, 512) if device == "cuda" else (64, 16)
    layers: list[Any] = []
    for _ in range(12):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers).to(device)
    if "no_hook" not in remedies:
        model[12].weight.register_hook(History().write)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, rows, width, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def alone(_: str) -> Alone:
    return {}
