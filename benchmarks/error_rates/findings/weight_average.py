"""Trains a ViT-S and averages its weights tensor by tensor, as timm's ModelEmaV2: foreach."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.findings.parts import adamw, in_bf16, sized, tf32, training
from benchmarks.error_rates.what_if.odd_vocabulary import Block
from benchmarks.error_rates.what_if.parts import Step

DECAY = 0.999


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(14)
    tf32()
    images, dim, depth = sized(device, (64, 384, 12), (2, 64, 2))
    patches, pixels = sized(device, (196, 768), (4, 48))
    layers = [nn.Linear(pixels, dim), *(Block(dim) for _ in range(depth)), nn.LayerNorm(dim)]
    model = nn.Sequential(*layers, nn.Linear(dim, 10)).to(device)
    x = torch.randn(images, patches, pixels, device=device)
    y = torch.randint(10, (images,), device=device)
    weights = [each.detach() for each in model.parameters()]
    average = [each.clone() for each in weights]

    def loss() -> Any:
        return nn.functional.cross_entropy(model(x).mean(1), y)

    train = training(in_bf16(device, loss), adamw(model.parameters()))

    def step() -> torch.Tensor:
        train()
        if "foreach" in remedies:
            torch._foreach_lerp_(average, weights, 1 - DECAY)
        else:
            for kept, new in zip(average, weights, strict=True):
                kept.copy_(DECAY * kept + (1 - DECAY) * new)
        return average[0].abs().sum()

    return step
