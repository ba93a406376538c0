"""nanoGPT that sleeps for 8 ms after every step: without."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from benchmarks.error_rates.findings.parts import nanogpt
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    train = nanogpt(device)

    def step() -> Any:
        loss = train()
        if "awake" not in remedies:
            time.sleep(0.008)
        return loss

    return step
