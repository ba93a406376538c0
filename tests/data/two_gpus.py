"""Two processes on two GPUs: each computes on its own, and the first uses both.

Ids collide on purpose: both processes count their correlation ids from 1, and both call their
first stream 7. Recorded with `traceview record` on two H200 of one host.
"""

import multiprocessing

import torch


def work(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.tanh(x @ x / x.shape[0])
    return x


def alone(device: int, steps: int) -> None:
    torch.cuda.set_device(device)
    x = torch.randn(2048, 2048, device="cuda")
    for step in range(steps):
        with torch.cuda.nvtx.range(f"step_{step}"):
            x = work(x)
            print(device, step, x.mean().item())


def both(steps: int) -> None:
    here = torch.randn(2048, 2048, device="cuda:0")
    there = torch.randn(2048, 2048, device="cuda:1")
    for step in range(steps):
        with torch.cuda.nvtx.range(f"exchange_{step}"):
            here, there = work(here), work(there)
            here, there = there.to("cuda:0"), here.to("cuda:1")
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    second = context.Process(target=alone, args=(1, 4))
    second.start()
    alone(0, 4)
    second.join()
    both(4)
