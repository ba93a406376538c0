"""Four blocks of nn.MultiheadAttention in bf16 with weights nobody reads: need_weights=False."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.findings.parts import adamw, sized, training
from benchmarks.error_rates.what_if.parts import Step


class Encoder(nn.Module):
    def __init__(self, dim: int, weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, dim // 64, batch_first=True)
        self.norm, self.weights = nn.LayerNorm(dim), weights
        self.body = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: Any) -> Any:
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=self.weights)[0]
        return x + self.body(x)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(15)
    rows, length, dim = sized(device, (4, 2_048, 1_024), (2, 16, 128))
    blocks = [Encoder(dim, "unweighted" not in remedies) for _ in range(4)]
    model = nn.Sequential(*blocks).to(device, torch.bfloat16)
    x = torch.randn(rows, length, dim, device=device, dtype=torch.bfloat16)

    def loss() -> Any:
        return model(x).float().square().mean()

    return training(loss, adamw(model.parameters()))
