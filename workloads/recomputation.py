"""Activation checkpointing: forget what the forward pass computed, and compute it again.

    python workloads/recomputation.py

The backward pass needs what the layers computed in the forward pass, and all of it waits in memory
meanwhile. With checkpoints only the input of each block is kept: the backward pass runs the block
forward once more. Of three passes (forward one, backward two) it makes four: a third more, of what
the passes are of a step.

Expect: `kernel-share` finds a step of recompute longer than one of keep, by up to a third; the marks say how much less memory it held.

The ranges: warm_up, and step_N around keep and recompute, each around forward and backward. A mark
`peak memory of NAME: N bytes` follows each: what was allocated beyond weights and inputs.
"""  # noqa: E501 (the finding is one line, for a program to read)

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SEED = 20


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    return torch.cuda.nvtx.range if torch.version.cuda else lambda _: nullcontext()


annotate = annotation()


def block(dim: int) -> nn.Module:
    """What stands behind the attention of a transformer."""
    return nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))


def step(model: nn.ModuleList, x: Tensor, recompute: bool) -> None:
    """Forward and backward, through blocks that keep what they computed, or forget it."""
    model.zero_grad(set_to_none=True)
    with annotate("forward"):
        y = x
        for part in model:
            y = y + (checkpoint(part, y, use_reentrant=False) if recompute else part(y))
        loss = y.square().mean()
    with annotate("backward"):
        loss.backward()


def measured(name: str, work: Callable[[], None], device: str) -> None:
    """Do it, and leave a mark that says how much memory it took beyond what was there before."""
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
    parser = argparse.ArgumentParser(description="Train with and without checkpoints.")
    parser.add_argument("--layers", type=int, help="default: 8 on a GPU, else 2")
    parser.add_argument("--dim", type=int, help="default: 1024 on a GPU, else 16")
    parser.add_argument("--batch", type=int, help="default: 4096 on a GPU, else 8")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    given = parser.parse_args()
    device = given.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    layers, dim, batch = (
        getattr(given, name) or (large if device == "cuda" else small)
        for name, large, small in (("layers", 8, 2), ("dim", 1024, 16), ("batch", 4096, 8))
    )
    torch.manual_seed(SEED)
    model = nn.ModuleList(block(dim) for _ in range(layers)).to(device)
    x = torch.randn(batch, dim, device=device)
    gradients = {}
    with annotate("warm_up"):
        step(model, x, recompute=False)
    for number in range(given.steps):
        with annotate(f"step_{number}"):
            for name in ("keep", "recompute"):
                model.zero_grad(set_to_none=True)
                with annotate(name):
                    measured(name, partial(step, model, x, name == "recompute"), device)
                gradients[name] = float(model[0][0].weight.grad.square().sum())
    print(f"first gradient: {gradients['keep']:.6e} kept, {gradients['recompute']:.6e} recomputed")


if __name__ == "__main__":
    main()
