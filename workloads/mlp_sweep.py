"""Train an MLP at several depths, widths and batch sizes, to see what GPU time grows with.

    python workloads/mlp_sweep.py

Twice the layers take twice the time. Twice the width takes four times the time, as a layer's
weights are a square matrix. Twice the batch takes twice the time only if the GPU was full before;
below that the time does not change, and a larger batch is free.

Expect: `kernel-share` finds the time of layers_N in proportion to N, that of dim_N growing far faster than N, and that of batch_N hardly at all for small N.

The ranges: warm_up, and layers_N, dim_N and batch_N, each around step_N.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments
from ranges import annotate
from torch import Tensor, nn

SEED = 20
# Parameters that are not swept stay at these values.
USUAL = {
    "cuda": {"layers": 4, "dim": 1024, "batch": 2048},
    "cpu": {"layers": 2, "dim": 16, "batch": 8},
}
SWEEPS = {
    "cuda": {"layers": (2, 4, 8), "dim": (512, 1024, 2048), "batch": (16, 64, 2048, 4096)},
    "cpu": {"layers": (1, 2), "dim": (16, 32), "batch": (4, 8)},
}


def train(layers: int, dim: int, batch: int, steps: int, device: str) -> Tensor:
    """Take some steps of SGD; returns the last loss."""
    torch.manual_seed(SEED)
    parts = [part for _ in range(layers) for part in (nn.Linear(dim, dim), nn.GELU())]
    model = nn.Sequential(*parts).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, dim, device=device)
    loss = torch.zeros(())
    for step in range(steps):
        with annotate(f"step_{step}"):
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
    return loss.detach()


def main() -> None:
    parser = Arguments(__doc__, steps=2, of="steps of each size; ")
    given = parser.given()
    device = given.device
    with annotate("warm_up"):
        train(**USUAL[device], steps=1, device=device)
    for name, values in SWEEPS[device].items():
        for value in values:
            sizes = {**USUAL[device], name: value}
            with annotate(f"{name}_{value}"):
                loss = train(**sizes, steps=given.steps, device=device)
            print(f"{name} {value}: loss {float(loss):.6f}")


if __name__ == "__main__":
    main()
