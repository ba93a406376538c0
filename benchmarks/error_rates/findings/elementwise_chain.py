"""Four products, six elementwise operations after each, eager: torch.compile."""

from __future__ import annotations

from collections.abc import Collection

import torch

from benchmarks.error_rates.findings.parts import compiled, sized, tf32
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(3)
    tf32()
    rows, width = sized(device, (16_384, 4_096), (16, 64))
    inputs, residual = torch.randn(2, rows, width, device=device)
    weights = torch.randn(4, width, width, device=device) / width**0.5
    scale, shift = torch.randn(2, width, device=device)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            y = x @ weight
            x = torch.sigmoid(y * scale + shift) * y * 0.5 + residual
        return x

    called = compiled(forward, device) if "compiled" in remedies else forward

    @torch.no_grad()
    def step() -> torch.Tensor:
        return called(inputs)[0].sum()

    return step
