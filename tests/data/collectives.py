"""Every collective of torch.distributed at many sizes, on all GPUs of a host, one process per GPU.

Each size is timed with CUDA events and written to the JSON file named on the command line.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [2**power for power in (12, 16, 20, 24, 28)]
CALLS = 10


def calls(rank: int, ranks: int, size: int, other: dist.ProcessGroup):
    """Name -> (bytes that NCCL is told per call, function that runs it once)."""
    elements = size // 4
    whole = torch.ones(elements, device="cuda")
    gathered = torch.empty(elements * ranks, device="cuda")
    wide = torch.ones(elements * ranks, device="cuda")
    part = torch.empty(elements, device="cuda")
    inbox = torch.empty(elements, device="cuda")
    right, left = (rank + 1) % ranks, (rank - 1) % ranks

    def ring() -> None:
        ops = [dist.P2POp(dist.isend, whole, right), dist.P2POp(dist.irecv, inbox, left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def one_way() -> None:
        if rank == 0:
            dist.send(whole, 1)
        elif rank == 1:
            dist.recv(inbox, 0)

    def coalesced() -> None:
        with dist._coalescing_manager(device=torch.device("cuda", rank)):
            dist.all_gather_into_tensor(gathered, whole)
            dist.all_gather_into_tensor(wide, part)

    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_reduce_max": lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX),
        "all_reduce_other_group": lambda: dist.all_reduce(whole, group=other),
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, wide),
        "all_to_all": lambda: dist.all_to_all_single(inbox, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "ring_send_recv": ring,
        "one_way_send_recv": one_way,
        "coalesced_all_gather": coalesced,
    }


def timed_ns(function) -> list[int]:
    times = []
    for _ in range(CALLS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(round(begin.elapsed_time(end) * 1e6))
    return times


def back_to_back_ns(function) -> int:
    """Time per call of CALLS calls without a wait between them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        function()
    end.record()
    end.synchronize()
    return round(begin.elapsed_time(end) * 1e6 / CALLS)


def run(rank: int, ranks: int, out: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank)
    )
    other = dist.new_group(list(range(ranks)))
    rows = []
    for size in SIZES:
        for name, function in calls(rank, ranks, size, other).items():
            for _ in range(3):
                function()
            torch.cuda.synchronize()
            dist.barrier()
            with torch.cuda.nvtx.range(f"{name}/{size}"):
                times = timed_ns(function)
            mean = back_to_back_ns(function)
            rows.append(
                {"call": name, "size": size, "rank": rank, "times_ns": times, "mean_ns": mean}
            )
    Path(f"{out}.{rank}").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = torch.cuda.device_count()
    os.environ.setdefault("MASTER_PORT", "29511")
    began = time.time()
    mp.spawn(run, (ranks, sys.argv[1]), nprocs=ranks)
    print(f"torch {torch.__version__} NCCL {torch.cuda.nccl.version()} {time.time() - began:.1f} s")
