"""Activation checkpointing: forget what the forward pass computed, and compute it again.

    python workloads/recomputation.py

The backward pass needs what the layers computed in the forward pass, and all of it waits in memory
meanwhile. With checkpoints only the input of each block is kept: the backward pass runs the block
forward once more. Forward is one part of three, backward two: a whole second forward is a third
more. PyTorch stops it at the last result that the backward pass needs, here before the second of
the two products of a block: that makes a sixth.

Expect: `kernel-share` finds a step of recompute longer than one of keep by about a sixth, one product a block; the marks say how much less memory it held.

The ranges: warm_up and step_N, around keep and recompute, each around forward and backward. A mark
`peak memory of NAME: N bytes` follows each: what was allocated beyond weights and inputs.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from arguments import Arguments, count
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SEED = 20
# Whether the blocks are run again.
WAYS = {"keep": False, "recompute": True}


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
        # Both ways: the first checkpoint imports for seconds what it needs.
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
