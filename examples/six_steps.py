"""Train a small language model, as first written or with changes that make it faster.

    python examples/six_steps.py                             as first written
    python examples/six_steps.py workers bf16                with two changes
    python examples/six_steps.py --time "" workers "workers bf16"    three versions in turns

docs/from-slow-to-fast.md follows the report from change to change; its recordings are in
examples/six_steps/.
"""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CHANGES = ("workers", "bf16", "graph", "padded", "compile", "fused", "printing")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS = 16_001
WIDTH, HEADS, LAYERS, BATCH, LENGTH, STEPS = (
    (512, 8, 6, 32, 256, 32) if DEVICE == "cuda" else (32, 2, 2, 4, 32, 6)
)


class Sentences(Dataset[Tensor]):
    """Made-up sentences, encoded as they are read: the longest known word comes first."""

    def __init__(self, number: int) -> None:
        letters = random.Random(1)
        known = {"".join(letters.choices("abcdefghijklmnop", k=4)) for _ in range(2 * WORDS)}
        self.ids = {word: place for place, word in enumerate(sorted(known)[:WORDS])}
        self.words, self.number = list(self.ids), number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> Tensor:
        words = random.Random(place).choices(self.words, k=LENGTH + 1)
        return torch.tensor(self.encode("".join(words)))

    def encode(self, text: str) -> list[int]:
        ids, place = [], 0
        while place < len(text):
            longest = (text[place : place + length] for length in range(24, 0, -1))
            word = next(word for word in longest if word in self.ids)
            ids.append(self.ids[word])
            place += len(word)
        return ids


class Block(nn.Module):
    """Causal attention and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3)
        q, k, v = parts.unbind(2)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.mlp(self.inner_norm(x))


class Body(nn.Module):
    """From the vectors of words to the loss of the next words."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, words)

    def forward(self, x: Tensor, following: Tensor) -> Tensor:
        logits = self.head(self.norm(self.blocks(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def precision(changes: list[str]) -> AbstractContextManager[None]:
    # A captured graph cannot use copies of weights that another step cast.
    return torch.autocast(
        DEVICE, torch.bfloat16, enabled="bf16" in changes, cache_enabled="graph" not in changes
    )


def batches(changes: list[str]) -> Iterator[Tensor]:
    workers = {"num_workers": 12, "pin_memory": DEVICE == "cuda"} if "workers" in changes else {}
    for batch in DataLoader(Sentences(BATCH * STEPS), BATCH, **workers):
        yield batch.to(DEVICE, non_blocking=True)


def train(changes: list[str]) -> float:
    """Train, and give the milliseconds per step of the second half."""
    torch.manual_seed(0)
    words = -(-WORDS // 64) * 64 if "padded" in changes else WORDS
    embedding, body = nn.Embedding(words, WIDTH).to(DEVICE), Body(words).to(DEVICE)
    parameters = [*embedding.parameters(), *body.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-4, fused="fused" in changes or None)
    if "compile" in changes:
        body = torch.compile(body)
    if "graph" in changes and DEVICE == "cuda":
        x = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE, requires_grad=True)
        following = torch.zeros(BATCH, LENGTH, dtype=torch.int64, device=DEVICE)
        with precision(changes):
            body = torch.cuda.make_graphed_callables(body, (x, following))
    times = []
    for step, batch in enumerate(batches(changes)):
        with precision(changes):
            loss = body(embedding(batch[:, :-1]), batch[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if "printing" not in changes or step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        if step in (STEPS // 2 - 1, STEPS - 1):
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())
    print(f"last loss {loss.item():.3f}")
    return (times[1] - times[0]) / (STEPS - STEPS // 2) * 1e3


if __name__ == "__main__":
    timed = sys.argv[1:2] == ["--time"]
    if unknown := {*" ".join(sys.argv[1 + timed :]).split()} - {*CHANGES}:
        sys.exit(f"no such change: {', '.join(unknown)}; there are {', '.join(CHANGES)}")
    for version in sys.argv[2:] if timed else [" ".join(sys.argv[1:])]:
        print(f"{train(version.split()):.2f} ms per step: {version or 'as written'}", flush=True)
