"""Two ranks of expert parallelism: three quarters of the tokens go to the experts of rank 0."""

import os

import torch
import torch.distributed as dist
from torch import nn


def weights(rows, columns):
    return nn.Parameter(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02)


def main(steps=40, tokens=8192, d=1024):
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    w1, w2 = weights(d, 4 * d), weights(4 * d, d)
    send = [tokens * 3 // 4, tokens // 4]
    receive = [send[rank]] * 2
    for step in range(steps):
        if step == 10:
            torch.cuda.synchronize()
        x = torch.randn(tokens, d, device="cuda", dtype=torch.bfloat16)
        for _ in range(6):
            got = torch.empty(sum(receive), d, device="cuda", dtype=torch.bfloat16)
            dist.all_to_all_single(got, x, receive, send)
            y = torch.nn.functional.gelu(got @ w1) @ w2
            x = torch.empty(tokens, d, device="cuda", dtype=torch.bfloat16)
            dist.all_to_all_single(x, y, send, receive)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
