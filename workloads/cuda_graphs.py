"""Capture many small kernels as a CUDA graph, replay it, and read the result each time.

    python workloads/cuda_graphs.py

Without the graph the CPU launches each kernel by itself, slower than the GPU runs them, so the GPU
waits between kernels. With the graph one call launches all of them, and no gap inside is the CPU's
fault. But that call is long: if the CPU has just waited for the result, the GPU waits for the
call.

Expect: `gpu-idle` finds launch-late idle in eager steps, and graph-launch between replays, of which each gap names cudaGraphLaunch.

The ranges: eager_N, capture, and replay_N. Record it with `--graph-trace graph` and with `node`.
"""  # noqa: E501 (the finding is one line, for a program to read)

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor

SEED = 20


def work(x: Tensor, kernels: int) -> None:
    """Launch `kernels` kernels, in place: a graph replays on the same memory."""
    for number in range(kernels):
        if number % 2:
            x.sub_(0.5)
        else:
            x.mul_(1.001)


def eager(x: Tensor, kernels: int, steps: int) -> None:
    """Launch each kernel by itself."""
    for step in range(steps):
        with annotate(f"eager_{step}"):
            work(x, kernels)
            float(x[0])


def replay(x: Tensor, kernels: int, steps: int) -> None:
    """Capture once, and launch all kernels with one call per step."""
    graph = torch.cuda.CUDAGraph()
    with annotate("capture"), torch.cuda.graph(graph):
        work(x, kernels)
    for step in range(steps):
        with annotate(f"replay_{step}"):
            graph.replay()
            torch.cuda.synchronize()


def main() -> None:
    parser = Arguments(__doc__, steps=8)
    parser.add_argument("--kernels", type=count, help="kernels per step")
    given = parser.given()
    device = given.device
    torch.manual_seed(SEED)
    kernels = given.kernels or (400 if device == "cuda" else 10)
    x = torch.randn(1 << 16 if device == "cuda" else 16, device=device)
    eager(x, kernels, given.steps)
    if device == "cuda":
        replay(x, kernels, given.steps)
    print(f"x[0] = {float(x[0]):.6f}")


if __name__ == "__main__":
    main()
