"""Train a small transformer for a few steps, with a range around every part.

    python workloads/transformer.py

Where does the time of a step go? Backward takes about twice as long as forward, as each GEMM of
the forward pass has two in the backward pass. The optimizer reads and writes every weight and its
two moments, whatever the batch size.

Expect: `kernel-share` finds backward at about twice forward, launched by autograd's thread, and every layer's mlp above its attention.

The ranges: step_N around forward (embed, layer_N around attention and mlp, head), backward and
optimizer.
"""  # noqa: E501 (the finding is one line, for a program to read)

from dataclasses import dataclass

import torch
from arguments import Arguments
from ranges import annotate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

SEED = 20


@dataclass(frozen=True)
class Sizes:
    """Size of the model and the batch."""

    layers: int
    dim: int
    heads: int
    length: int
    batch: int
    words: int


DEFAULTS = {
    "cuda": Sizes(layers=4, dim=1024, heads=16, length=512, batch=8, words=8192),
    "cpu": Sizes(layers=2, dim=32, heads=2, length=16, batch=2, words=64),
}


class Layer(nn.Module):
    """Causal attention, then an MLP four times as wide, each with a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def attend(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        parts = self.to_qkv(x).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x: Tensor) -> Tensor:
        with annotate("attention"):
            x = x + self.attend(self.before_attention(x))
        with annotate("mlp"):
            return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    """Predicts the next token at every position."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.dim)
        self.places = nn.Embedding(sizes.length, sizes.dim)
        self.layers = nn.ModuleList(Layer(sizes.dim, sizes.heads) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.dim, sizes.words)

    def forward(self, text: Tensor) -> Tensor:
        with annotate("embed"):
            x = self.words(text) + self.places.weight
        for number, layer in enumerate(self.layers):
            with annotate(f"layer_{number}"):
                x = layer(x)
        with annotate("head"):
            return self.head(x)


def train(sizes: Sizes, steps: int, device: str) -> float:
    """Take some steps on one synthetic batch; returns the last loss."""
    torch.manual_seed(SEED)
    model = Transformer(sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(sizes.words, (sizes.batch, sizes.length + 1), device=device)
    loss = torch.zeros(())
    for step in range(steps):
        with annotate(f"step_{step}"):
            optimizer.zero_grad(set_to_none=True)
            with annotate("forward"), torch.autocast(device, torch.bfloat16):
                said = model(text[:, :-1])
                loss = cross_entropy(said.flatten(0, 1), text[:, 1:].flatten())
            with annotate("backward"):
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
    return loss.item()


def main() -> None:
    parser = Arguments(__doc__, steps=4)
    given = parser.given()
    device = given.device
    print(f"loss {train(DEFAULTS[device], given.steps, device):.4f}")


if __name__ == "__main__":
    main()
