"""Trains an MLP on 64 MiB of pageable memory per step: pinned, copied a step ahead."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

import torch
from torch import nn

from benchmarks.error_rates.findings.parts import mlp, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(7)
    tf32()
    rows, features, width = sized(device, (16_384, 1_024, 2_048), (16, 64, 64))
    model = mlp(width, 8, device).insert(0, nn.Linear(features, width, device=device))
    host = [torch.randn(rows, features) for _ in range(4)]
    numbers = count()
    ahead = "ahead" in remedies and device == "cuda"
    if ahead:
        host = [each.pin_memory() for each in host]
        side = torch.cuda.Stream()
        arriving = host[0].to(device)

    def batch() -> torch.Tensor:
        nonlocal arriving
        number = next(numbers)
        if not ahead:
            return host[number % 4].to(device)
        compute = torch.cuda.current_stream()
        compute.wait_stream(side)
        x = arriving
        x.record_stream(compute)
        with torch.cuda.stream(side):
            arriving = host[(number + 1) % 4].to(device, non_blocking=True)
        return x

    def loss() -> torch.Tensor:
        return model(batch()).square().mean()

    return training(loss, torch.optim.SGD(model.parameters(), lr=1e-3))
