"""Train a multilayer perceptron (MLP), with an NVTX range around every part of a step.

    python workloads/mlp.py                 the CPU hands out work and never waits for results
    python workloads/mlp.py --print-loss    the CPU reads the loss in every step

Python does not compute here: it queues kernels far faster than the GPU runs them, and so runs
ahead. `loss.item()` needs a number that the GPU has yet to compute: the CPU waits until the queue
is empty, and then the GPU waits until the CPU has filled it again.

Expect: `run-ahead` finds the CPU steps ahead; with --print-loss, sync-drained by the cudaStreamSynchronize of each step.

The ranges, outermost first: define_model, and step_N around forward (with layer_N inside),
backward and optimizer.
"""  # noqa: E501 (the finding is one line, for a program to read)

from dataclasses import dataclass

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Size of the model, the batch and the run."""

    dim: int
    layers: int
    batch: int
    steps: int


# On a GPU a layer has to be large enough that computing it takes longer than asking for it:
# only then can the CPU run ahead. On a CPU nothing runs ahead, and small is enough.
DEFAULTS = {
    "cuda": Sizes(dim=2048, layers=16, batch=4096, steps=8),
    "cpu": Sizes(dim=256, layers=4, batch=64, steps=4),
}
SEED = 20


class MLP(nn.Module):
    """Linear layers of equal width, each followed by a GELU."""

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            with annotate(f"layer_{i}"):
                x = nn.functional.gelu(layer(x))
        return x


def train(sizes: Sizes, device: str, print_loss: bool) -> None:
    """Take `sizes.steps` steps of SGD on one synthetic batch."""
    torch.manual_seed(SEED)
    with annotate("define_model"):
        model = MLP(sizes.dim, sizes.layers).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(sizes.batch, sizes.dim, device=device)
    for step in range(sizes.steps):
        with annotate(f"step_{step}"):
            optimizer.zero_grad(set_to_none=True)
            with annotate("forward"):
                loss = model(x).mean()
            with annotate("backward"):
                loss.backward()
            with annotate("optimizer"):
                optimizer.step()
            if print_loss:
                # The one line that makes the difference: it waits for the GPU.
                print(f"step {step}: loss {loss.item():.6f}")
    if device == "cuda":
        # Without this the program, and the recording with it, would end before the GPU does.
        torch.cuda.synchronize()


def main() -> None:
    parser = Arguments(__doc__)
    for name in ("dim", "layers", "batch", "steps"):
        small, large = (getattr(DEFAULTS[device], name) for device in ("cpu", "cuda"))
        usual = f"default: {large} on a GPU, else {small}"
        parser.add_argument(f"--{name}", type=count, help=usual)
    parser.add_argument("--print-loss", action="store_true", help="read the loss in every step")
    given = parser.given()
    device = given.device
    chosen = {
        name: default if getattr(given, name) is None else getattr(given, name)
        for name, default in vars(DEFAULTS[device]).items()
    }
    train(Sizes(**chosen), device, given.print_loss)


if __name__ == "__main__":
    main()
