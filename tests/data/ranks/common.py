import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--late-rank", type=int, default=1)
    parser.add_argument("--sleep-ms", type=float, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--busy-ms", type=float, default=0)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--late-batch", type=int, default=0)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--read-loss", action="store_true")
    parser.add_argument("--even", action="store_true")
    return parser.parse_args()


def start():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    return rank, ranks, device


class Model(nn.Module):
    def __init__(self, tokens=8192, width=1024, layers=8):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, tokens)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loop(rank, steps, step):
    began = time.perf_counter()
    for number in range(steps):
        if number == 6:
            torch.cuda.synchronize()
            began = time.perf_counter()
        step(number)
    torch.cuda.synchronize()
    print(
        f"rank {rank}: {(time.perf_counter() - began) / (steps - 6) * 1e3:.3f} ms per step",
        flush=True,
    )


def end():
    dist.barrier()
    dist.destroy_process_group()
