"""GPT-2 124M in bf16 that computes the activations of each block again: kept."""

from __future__ import annotations

from collections.abc import Collection

import torch

from benchmarks.error_rates.findings.parts import adamw, gpt2, in_bf16, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(13)
    tf32()
    model, text = gpt2(sized(device, 50_304, 128), 6, device)
    model.checkpoints = "kept" not in remedies
    loss = in_bf16(device, model, text[:, :-1], text[:, 1:])
    return training(loss, adamw(model.parameters()))
