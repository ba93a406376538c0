"""A small MLP that reads its loss in every step: not read, as a CUDA graph, and both."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step, captured


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(2)
    layers: list[Any] = []
    for _ in range(12):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, fused=True, capturable=device == "cuda"
    )
    criterion = nn.CrossEntropyLoss()
    batches = torch.randn(8, 64, 256, device=device)
    labels = torch.randint(10, (8, 64), device=device)
    x, y = batches[0].clone(), labels[0].clone()

    def train() -> torch.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if "graph" in remedies:
        train = captured(train, device)
    steps = count()
    losses: list[float] = []
    total = torch.zeros((), device=device)

    def step() -> Any:
        number = next(steps) % 8
        x.copy_(batches[number])
        y.copy_(labels[number])
        loss = train()
        if "no_item" in remedies:
            total.add_(loss)
            return loss
        losses.append(loss.item())
        return losses[-1]

    return step


def alone(_: str) -> Alone:
    return {}
