"""nanoGPT without torch.compile: with it."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.error_rates.findings.parts import nanogpt
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    return nanogpt(device, compile_model="compiled" in remedies)
