"""A small language model whose vocabulary is odd, in TF32: padded, in bf16, and both."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch.nn import functional

from benchmarks.error_rates.what_if.parts import Alone, Step, trained


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = dim // 64
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, 64)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def sizes(device: str) -> tuple[int, int, int, int, int]:
    """Tokens of the vocabulary, as it is and padded; width; sequences and their length."""
    return (32_003, 32_064, 1_024, 8, 512) if device == "cuda" else (101, 128, 64, 2, 16)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    tokens, padded, dim, batch, length = sizes(device)
    vocabulary = padded if "padded" in remedies else tokens
    model = nn.Sequential(
        nn.Embedding(vocabulary, dim), Block(dim), Block(dim), nn.LayerNorm(dim)
    ).to(device)
    head = nn.Linear(dim, vocabulary, bias=False, device=device)
    if "bf16" in remedies:
        model, head = model.bfloat16(), head.bfloat16()
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    text = torch.randint(tokens, (batch, length + 1), device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        logits = head(model(text[:, :-1]))
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def alone(device: str) -> Alone:
    torch.set_float32_matmul_precision("high")
    tokens, padded, dim, batch, length = sizes(device)
    rows = batch * length

    def head(vocabulary: int, dtype: torch.dtype) -> Step:
        layer = nn.Linear(dim, vocabulary, bias=False, device=device, dtype=dtype)
        return trained(layer, torch.randn(rows, dim, device=device, dtype=dtype))

    def pair(layer: type[nn.Module], arguments: tuple[int, ...], *shape: int) -> tuple[Step, Step]:
        both = [
            trained(
                layer(*arguments).to(device, dtype), torch.randn(shape, device=device).to(dtype)
            )
            for dtype in (torch.float32, torch.bfloat16)
        ]
        return both[0], both[1]

    def loss(dtype: torch.dtype) -> Step:
        targets = torch.randint(tokens, (rows,), device=device)
        logits = torch.randn(rows, tokens, device=device, dtype=dtype)
        return trained(lambda scores: functional.cross_entropy(scores, targets), logits)

    def attention(dtype: torch.dtype) -> Step:
        qkv = [torch.randn(batch, dim // 64, length, 64, device=device).to(dtype) for _ in "qkv"]
        attend = functional.scaled_dot_product_attention
        return trained(lambda q, k, v: attend(q, k, v, is_causal=True), *qkv)

    def adamw(dtype: torch.dtype) -> Step:
        weights = torch.randn(2 * tokens * dim + 24 * dim**2, device=device, dtype=dtype)
        weights.grad = torch.randn_like(weights)
        optimizer = torch.optim.AdamW([weights], fused=True)
        return lambda: optimizer.step()

    single, half = torch.float32, torch.bfloat16
    return {
        "head_padded": (head(tokens, single), head(padded, single)),
        "head_bf16": (head(tokens, single), head(tokens, half)),
        "head_padded_bf16": (head(tokens, single), head(padded, half)),
        "linear_bf16": pair(nn.Linear, (dim, 4 * dim), rows, dim),
        "norm_bf16": pair(nn.LayerNorm, (dim,), rows, dim),
        "gelu_bf16": pair(nn.GELU, (), rows, 4 * dim),
        "attention_bf16": (attention(single), attention(half)),
        "loss_bf16": (loss(single), loss(half)),
        "adamw_bf16": (adamw(single), adamw(half)),
    }
