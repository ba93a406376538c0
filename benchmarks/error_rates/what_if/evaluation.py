"""Counts the right answers of a large classifier, read batch by batch: read by nobody.

The GPU is the limit: the CPU waits for it, and the GPU hardly ever for the CPU.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(10)
    width, rows = (4_096, 2_048) if device == "cuda" else (64, 16)
    layers: list[Any] = []
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(device).eval()
    batches = torch.randn(4, rows, width, device=device)
    labels = torch.randint(10, (4, rows), device=device)
    numbers = count()
    right = torch.zeros((), dtype=torch.long, device=device)
    totals = [0]

    def step() -> Any:
        with torch.no_grad():
            number = next(numbers) % 4
            hits = (model(batches[number]).argmax(dim=1) == labels[number]).sum()
            if "on_gpu" in remedies:
                right.add_(hits)
                return right
            totals[0] += hits.item()
            return totals[0]

    return step


def alone(_: str) -> Alone:
    return {}
