"""Copies 32 MiB of scores to the CPU in every step to read some: picked on the GPU."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from benchmarks.error_rates.findings.parts import mlp, sized, tf32
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(2)
    tf32()
    width, rows, classes = sized(device, (2_048, 8_192, 1_024), (64, 128, 32))
    model = mlp(width, 20, device).append(nn.Linear(width, classes, device=device))
    x = torch.randn(rows, width, device=device)

    @torch.no_grad()
    def step() -> torch.Tensor:
        scores = model(x)
        if "on_gpu" in remedies:
            return scores[::64].argmax(1).sum()
        # A sample of the rows: the copy is the fault, not the work of the CPU.
        return scores.cpu()[::64].argmax(1).sum()

    return step
