"""nanoGPT that sorts a list of numbers on the CPU in every step: without."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

from benchmarks.error_rates.findings.parts import nanogpt
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    train = nanogpt(device)
    numbers = [random.random() for _ in range(20_000)]

    def step() -> Any:
        loss = train()
        if "unsorted" not in remedies:
            sorted(numbers)
        return loss

    return step
