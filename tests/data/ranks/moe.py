"""Mixture of experts: all-to-all; the expert of rank 1 gets three quarters of the tokens."""

import common
import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = in_splits, out_splits
        y = x.new_empty(sum(out_splits), x.shape[1])
        dist.all_to_all_single(y, x.contiguous(), out_splits, in_splits)
        return y

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.splits), None, None


def main():
    options = common.options()
    rank, _ranks, device = common.start()
    width, tokens = 2048, 16384
    experts = (
        nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(4)
        )
        .to(device)
        .bfloat16()
    )
    gate = nn.Linear(width, width, device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD([*experts.parameters(), *gate.parameters()], 1e-4)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    few, many = (tokens // 2, tokens // 2) if options.even else (tokens // 4, tokens - tokens // 4)
    to = [few, many]
    mine = [to[rank]] * 2

    def step(number):
        y = gate(x)
        for expert in experts:
            y = Exchange.apply(y, mine, to)
            y = expert(y)
            y = Exchange.apply(y, to, mine)
        y.float().square().mean().backward()
        for p in gate.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    common.loop(rank, options.steps, step)
    common.end()


if __name__ == "__main__":
    main()
