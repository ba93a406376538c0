"""Scores batches that a second stream uploads a batch ahead; the copies hide behind fp32 GEMMs.

With TF32 the products end long before the next batch has arrived: the copies are the limit.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from itertools import count
from typing import Any

import torch
from torch import nn

from benchmarks.error_rates.what_if.parts import Alone, Step

DIM = 1_024


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(3)
    on_gpu = device == "cuda"
    rows = 16_384 if on_gpu else 64
    layers = [nn.Linear(DIM, DIM, bias=False) for _ in range(4)]
    model = nn.Sequential(*layers).to(device)
    host = [torch.randn(rows, DIM) for _ in range(4)]
    if on_gpu:
        host = [each.pin_memory() for each in host]
    buffers = [torch.empty(rows, DIM, device=device) for _ in range(2)]
    if on_gpu:
        uploads, compute = torch.cuda.Stream(), torch.cuda.current_stream()
        arrived = [torch.cuda.Event() for _ in buffers]
        free = [torch.cuda.Event() for _ in buffers]

    def upload(number: int) -> None:
        slot = number % 2
        with torch.cuda.stream(uploads) if on_gpu else nullcontext():
            if on_gpu:
                uploads.wait_event(free[slot])
            buffers[slot].copy_(host[number % 4], non_blocking=True)
            if on_gpu:
                arrived[slot].record()

    upload(0)
    numbers = count()

    def step() -> Any:
        with torch.no_grad():
            torch.backends.cuda.matmul.allow_tf32 = "tf32" in remedies
            number = next(numbers)
            upload(number + 1)
            if on_gpu:
                compute.wait_event(arrived[number % 2])
            scores = model(buffers[number % 2])
            if on_gpu:
                free[number % 2].record()
            return scores.square().mean()

    return step


def alone(device: str) -> Alone:
    layer = nn.Linear(DIM, DIM, bias=False, device=device)
    x = torch.randn(16_384 if device == "cuda" else 64, DIM, device=device)

    def product(tf32: bool) -> Step:
        def run() -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            with torch.no_grad():
                layer(x)

        return run

    return {"products_tf32": (product(False), product(True))}
