"""Causal attention by two products and a softmax, in fp32: SDPA, in bf16, and both."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import nn
from torch.nn import functional

from benchmarks.error_rates.what_if.parts import Alone, Step, trained


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class SelfAttention(nn.Module):
    def __init__(self, dim: int, uses_sdpa: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.attend = fused if uses_sdpa else by_hand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        heads = self.qkv(self.norm(x)).view(batch, length, 3, dim // 64, 64)
        attended = self.attend(*heads.permute(2, 0, 3, 1, 4))
        return x + self.out(attended.transpose(1, 2).reshape(batch, length, dim))


def sizes(device: str) -> tuple[int, int, int]:
    """Sequences, their length, and the width."""
    return (4, 1_024, 768) if device == "cuda" else (2, 16, 128)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(8)
    batch, length, dim = sizes(device)
    layers = [SelfAttention(dim, "sdpa" in remedies) for _ in range(2)]
    dtype = torch.bfloat16 if "bf16" in remedies else torch.float32
    model = nn.Sequential(*layers).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, batch, length, dim, device=device).to(dtype)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def alone(device: str) -> Alone:
    batch, length, dim = sizes(device)
    rows = batch * length

    def attention(sdpa: bool, dtype: torch.dtype) -> Step:
        qkv = [torch.randn(batch, dim // 64, length, 64, device=device).to(dtype) for _ in "qkv"]
        return trained(fused if sdpa else by_hand, *qkv)

    def layer(kind: type[nn.Module], sizes: tuple[int, ...], dtype: torch.dtype) -> Step:
        x = torch.randn(rows, dim, device=device).to(dtype)
        return trained(kind(*sizes).to(device, dtype), x)

    single, half = torch.float32, torch.bfloat16
    linear, norm = (nn.Linear, (dim, 3 * dim)), (nn.LayerNorm, (dim,))
    return {
        "attention_sdpa": (attention(False, single), attention(True, single)),
        "attention_bf16": (attention(False, single), attention(False, half)),
        "attention_sdpa_bf16": (attention(False, single), attention(True, half)),
        "linear_bf16": (layer(*linear, single), layer(*linear, half)),
        "norm_bf16": (layer(*norm, single), layer(*norm, half)),
    }
