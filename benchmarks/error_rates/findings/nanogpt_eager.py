"""nanoGPT without torch.compile: with it, and with its two passes as CUDA graphs."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.error_rates.findings.parts import nanogpt
from benchmarks.error_rates.what_if.parts import Step


def build(remedies: Collection[str], device: str) -> Step:
    mode = "reduce-overhead" if "graphs" in remedies else "default"
    return nanogpt(device, mode if remedies else None)
