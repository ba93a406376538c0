"""Train with activation checkpointing: discard activations and compute them again.

    python workloads/recomputation.py

The backward pass needs the activations of the forward pass, which occupy memory until then. With
checkpoints only the input of each block is kept, and the backward pass runs the block forward once
more. Forward takes one part of three and backward two, so a full second forward adds a third.
PyTorch stops it at the last activation that the backward pass needs, here before the second of the
two GEMMs of a block, so it adds a sixth.

Expect: `kernel-share` finds that the backward pass computes activations again, one GEMM and one GELU per block, which makes a step of recompute about a sixth longer than one of keep; the marks show how much less memory it held.

The ranges: warm_up and step_N around keep and recompute, each around forward and backward. A mark
`peak memory of NAME: N bytes` follows each: the peak allocated beyond weights and inputs.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from functools import partial

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SEED = 20
# Whether the blocks are recomputed.
WAYS = {"keep": False, "recompute": True}


def block(dim: int) -> nn.Module:
    """The MLP block of a transformer."""
    return nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))


def step(model: nn.ModuleList, x: Tensor, recompute: bool) -> None:
    """Run forward and backward through blocks that keep their activations or discard them."""
    model.zero_grad(set_to_none=True)
    with annotate("forward"):
        y = x
        for part in model:
            y = y + (checkpoint(part, y, use_reentrant=False) if recompute else part(y))
        loss = y.square().mean()
    with annotate("backward"):
        loss.backward()


def measured(name: str, work: Callable[[], None], device: str) -> None:
    """Run `work`, and mark the peak memory it allocated."""
    if device == "cpu":
        work()
        return
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    taken = torch.cuda.max_memory_allocated() - before
    torch.cuda.nvtx.mark(f"peak memory of {name}: {taken} bytes")
    print(f"{name}: {taken / 1e6:.0f} MB")


def main() -> None:
    parser = Arguments(__doc__, steps=2)
    parser.add_argument("--layers", type=count, help="default: 8 on a GPU, else 2")
    parser.add_argument("--dim", type=count, help="default: 1024 on a GPU, else 16")
    parser.add_argument("--batch", type=count, help="default: 4096 on a GPU, else 8")
    given = parser.given()
    device = given.device
    layers, dim, batch = (
        getattr(given, name) or (large if device == "cuda" else small)
        for name, large, small in (("layers", 8, 2), ("dim", 1024, 16), ("batch", 4096, 8))
    )
    torch.manual_seed(SEED)
    model = nn.ModuleList(block(dim) for _ in range(layers)).to(device)
    x = torch.randn(batch, dim, device=device)
    gradients = {}
    with annotate("warm_up"):
        # Both ways: the first checkpoint spends seconds on imports.
        for name in WAYS:
            with annotate(name):
                step(model, x, WAYS[name])
    for number in range(given.steps):
        with annotate(f"step_{number}"):
            for name in WAYS:
                model.zero_grad(set_to_none=True)
                with annotate(name):
                    measured(name, partial(step, model, x, WAYS[name]), device)
                gradients[name] = float(model[0][0].weight.grad.square().sum())
    print(f"first gradient: {gradients['keep']:.6e} kept, {gradients['recompute']:.6e} recomputed")


if __name__ == "__main__":
    main()
