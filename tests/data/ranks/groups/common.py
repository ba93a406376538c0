import os
import time

import torch
import torch.distributed as dist

WARM_UP = 6


def start(**options):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, **options)
    torch.manual_seed(rank)
    return rank, ranks, device


def loop(rank, steps, step):
    began = time.perf_counter()
    for number in range(steps):
        if number == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        torch.cuda.nvtx.range_push(f"step_{number}")
        with torch.profiler.record_function(f"step_{number}"):
            step(number)
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    print(
        f"rank {rank}: {(time.perf_counter() - began) / (steps - WARM_UP) * 1e3:.3f} ms per step",
        flush=True,
    )


class Part:
    """A range that both recorders show."""

    def __init__(self, name):
        self.name, self.record = name, torch.profiler.record_function(name)

    def __enter__(self):
        torch.cuda.nvtx.range_push(self.name)
        self.record.__enter__()

    def __exit__(self, *error):
        self.record.__exit__(*error)
        torch.cuda.nvtx.range_pop()


def end():
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
