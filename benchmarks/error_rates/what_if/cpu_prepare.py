"""Trains on batches that NumPy prepares in every step: prepared once, pinned, and both."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step

WIDTH = 1_024


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(4)
    random = np.random.default_rng(4)
    rows = 1_536 if device == "cuda" else 32
    images = random.integers(0, 256, (4 * rows, WIDTH), dtype=np.uint8)
    mean = images.mean(axis=0, dtype=np.float32)
    deviation = images.std(axis=0, dtype=np.float32)
    orders = [random.permutation(len(images))[:rows] for _ in range(8)]
    layers: list[Any] = []
    for _ in range(6):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    labels = torch.randint(10, (rows,), device=device)

    def prepare(order: Any) -> Any:
        return np.clip((images[order].astype(np.float32) - mean) / deviation, -2, 2)

    ready = [torch.from_numpy(prepare(order)) for order in orders]
    # Four buffers: the copy out of one has ended long before it is written again.
    staging = [torch.empty(rows, WIDTH, pin_memory=device == "cuda") for _ in range(4)]
    copied = [torch.cuda.Event() for _ in staging] if device == "cuda" else []
    if {"in_advance", "pinned"} <= set(remedies) and device == "cuda":
        ready = [each.pin_memory() for each in ready]
    numbers = count()

    def next_batch() -> torch.Tensor:
        number = next(numbers)
        if "in_advance" in remedies:
            x = ready[number % 8]
            return x.to(device, non_blocking="pinned" in remedies)
        x = prepare(orders[number % 8])
        if "pinned" in remedies:
            slot = number % 4
            if copied:
                copied[slot].synchronize()
            staging[slot].copy_(torch.from_numpy(x))
            batch = staging[slot].to(device, non_blocking=True)
            if copied:
                copied[slot].record()
            return batch
        return torch.from_numpy(x).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(next_batch()), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def alone(_: str) -> Alone:
    return {}
