"""GPT-2 124M in bf16 with a vocabulary of 50,257, as nanoGPT's bench.py: 50,304."""

from __future__ import annotations

from collections.abc import Collection

import torch

from benchmarks.error_rates.findings.parts import adamw, gpt2, in_bf16, sized, tf32, training
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(4)
    tf32()
    odd, padded = sized(device, (50_257, 50_304), (101, 128))
    model, text = gpt2(padded if "padded" in remedies else odd, 6, device)
    text %= odd
    loss = in_bf16(device, model, text[:, :-1], text[:, 1:])
    return training(loss, adamw(model.parameters()))
