"""nanoGPT that empties the caching allocator after every step: not emptied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from benchmarks.error_rates.findings.parts import nanogpt
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    train = nanogpt(device)

    def step() -> Any:
        loss = train()
        if "kept" not in remedies:
            torch.cuda.empty_cache()
        return loss

    return step
