"""What several of the programs use: sizes, an MLP, a GPT, a training step, nanoGPT's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.error_rates.what_if.odd_vocabulary import Block
from benchmarks.error_rates.what_if.parts import Step

Size = TypeVar("Size")


def sized(device: str, on_gpu: Size, on_cpu: Size) -> Size:
    """The size to measure, or a small one to see that the program works."""
    return on_gpu if device == "cuda" else on_cpu


def tf32(wanted: bool = True) -> None:
    torch.backends.cuda.matmul.allow_tf32 = wanted


def mlp(width: int, layers: int, device: str) -> nn.Sequential:
    """Linear layers of equal width, each followed by a GELU."""
    rows = [each for _ in range(layers) for each in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*rows).to(device)


def training(loss_of: Step, optimizer: Any, after_backward: Step | None = None) -> Step:
    """One step of training, which returns the loss."""

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if after_backward:
            after_backward()
        optimizer.step()
        detached: torch.Tensor = loss.detach()
        return detached

    return step


def in_bf16(device: str, function: Callable[..., Any], *arguments: Any) -> Step:
    """A call under autocast to bf16."""

    def call() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return function(*arguments)

    return call


def compiled(
    function: Callable[..., Any], device: str, mode: str = "default"
) -> Callable[..., Any]:
    """By Inductor on a GPU; on a CPU only traced, as a test."""
    how = sized(device, {"mode": mode}, {"backend": "eager"})
    result: Callable[..., Any] = torch.compile(function, **how)
    return result


class GPT(nn.Module):
    """A GPT with learned positions and tied embeddings, which returns its loss."""

    def __init__(self, vocabulary: int, layers: int, dim: int, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.checkpoints = False
        for each in (self.token, self.position):
            nn.init.normal_(each.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        logits = functional.linear(self.norm(x), self.token.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def gpt2(vocabulary: int, sequences: int, device: str) -> tuple[GPT, torch.Tensor]:
    """GPT-2 124M and a text of sequences of 1,024 tokens, one more for the targets."""
    layers, dim, length = sized(device, (12, 768, 1_024), (2, 64, 16))
    text = torch.randint(min(vocabulary, 50_257), (sequences, length + 1), device=device)
    return GPT(vocabulary, layers, dim, length).to(device), text


def adamw(parameters: Iterable[Any]) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def nanogpt(device: str, mode: str | None = None) -> Step:
    """nanoGPT's train.py for characters without dropout: 6 layers of 384, batch 32, bf16, eager."""
    torch.manual_seed(8)
    tf32()
    layers, dim, length, rows = sized(device, (6, 384, 256, 32), (2, 64, 16, 4))
    model = GPT(65, layers, dim, length).to(device)
    optimizer = adamw(model.parameters())
    called: Callable[..., Any] = compiled(model, device, mode) if mode else model
    data = torch.randint(65, (1_000_000,))
    places = torch.Generator().manual_seed(8)

    def batch() -> list[torch.Tensor]:
        begin = torch.randint(len(data) - length, (rows,), generator=places).tolist()
        pair = [torch.stack([data[i + at : i + at + length] for i in begin]) for at in (0, 1)]
        if device == "cuda":
            pair = [each.pin_memory() for each in pair]
        return [each.to(device, non_blocking=True) for each in pair]

    def loss() -> Any:
        x, y = batch()
        with torch.autocast(device, torch.bfloat16):
            return called(x, y)

    def clip() -> Any:
        return nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return training(loss, optimizer, clip)
