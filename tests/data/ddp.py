"""Data-parallel training of an MLP on all GPUs of a host: `--late MS` makes rank 1 sleep per step.

`--fsdp` shards the parameters instead (all-gather and reduce-scatter).
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def augment(batch: torch.Tensor, late_ms: float) -> torch.Tensor:
    if late_ms:
        time.sleep(late_ms / 1000)
    return batch * 1.01


def train(rank: int, ranks: int, options: argparse.Namespace) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank)
    )
    torch.manual_seed(0)
    model = nn.Sequential(
        *(layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.GELU()))
    )
    model = model.cuda().bfloat16()
    if options.fsdp:
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        model = fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    began = time.perf_counter()
    for step in range(options.steps):
        if step == 5:
            torch.cuda.synchronize()
            began = time.perf_counter()
        batch = augment(data, options.late if rank == 1 else 0.0)
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if options.late or step % 10 == 9:
            loss.item()
    torch.cuda.synchronize()
    per_step = (time.perf_counter() - began) / (options.steps - 5)
    print(f"rank {rank}: {per_step * 1e3:.3f} ms per step", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--fsdp", action="store_true")
    os.environ.setdefault("MASTER_PORT", "29512")
    mp.spawn(
        train, (torch.cuda.device_count(), parser.parse_args()), nprocs=torch.cuda.device_count()
    )
