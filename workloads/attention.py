"""Compute attention naively and with torch's flash attention, over sequence lengths.

    python workloads/attention.py

Naive attention stores a score for every pair of positions: twice the sequence length is four times
the scores, which are written, read by the softmax, written, and read by the second GEMM. Flash
attention keeps a tile of them on the chip: the same arithmetic, with memory linear in the length.

Expect: `kernel-share` finds naive_N slower than flash_N, more so the longer N is; the marks show its memory growing with the square of N, that of flash with N.

The ranges: warm_up, and step_N around naive_N and flash_N. A mark `peak memory of NAME: N bytes`
follows each: the peak allocated beyond the inputs.
"""  # noqa: E501 (the finding is one line, for a program to read)

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

SEED = 20
HEADS, DIM = 8, 64
LENGTHS = {"cuda": (1024, 2048, 4096, 8192), "cpu": (32, 64)}


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute all scores, then their softmax, then the weighted sum."""
    scores = (q @ k.transpose(-2, -1)) * DIM**-0.5
    return torch.softmax(scores, dim=-1) @ v


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's own attention; on a GPU with the flash backend only."""
    chosen = sdpa_kernel(SDPBackend.FLASH_ATTENTION) if q.is_cuda else nullcontext()
    with chosen:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


VERSIONS = {"naive": naive, "flash": flash}


def measured(name: str, work: Callable[[], Tensor], device: str) -> Tensor:
    """Run `work`, and mark the peak memory it allocated."""
    if device == "cpu":
        return work()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    taken = torch.cuda.max_memory_allocated() - before
    torch.cuda.nvtx.mark(f"peak memory of {name}: {taken} bytes")
    print(f"{name}: {taken / 1e6:.1f} MB")
    return result


def inputs(length: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(SEED)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = torch.randn(3, 1, HEADS, length, DIM, device=device).to(dtype)
    return q, k, v


def compare(length: int, device: str) -> float:
    """Compute it both ways; returns the largest difference between the results."""
    tensors = inputs(length, device)
    results = []
    for name, version in VERSIONS.items():
        label = f"{name}_{length}"
        with annotate(label):
            results.append(measured(label, partial(version, *tensors), device))
    return float((results[0] - results[1]).abs().max())


def main() -> None:
    parser = Arguments(__doc__, steps=2)
    parser.add_argument("--lengths", type=count, nargs="+", help="sequence lengths")
    given = parser.given()
    device = given.device
    lengths = given.lengths or LENGTHS[device]
    with annotate("warm_up"):
        for version in VERSIONS.values():
            version(*inputs(lengths[0], device))
    for step in range(given.steps):
        with annotate(f"step_{step}"):
            for length in lengths:
                difference = compare(length, device)
                print(f"{length}: results differ by {difference:.1e} at most")


if __name__ == "__main__":
    main()
