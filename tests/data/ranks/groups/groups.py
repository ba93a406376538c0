"""Three process groups of the same two ranks: tensor and data parallel, and a pipeline.

Rank 1 sleeps SLEEP_MS before its last data-parallel all-reduce in every step of odd number. Its CPU
runs ahead of the GPU by less than that.
"""

import argparse
import time

import common
import torch
import torch.distributed as dist
from common import Part

SLEEP_MS = 12.0
LAYERS, WIDTH = 4, 4096
MIB = 1 << 20


def last_gradient(rank, number, sleep):
    if rank == 1 and number % 2 == 1 and sleep:
        time.sleep(sleep / 1e3)


def main():  # noqa: C901
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--sleep-ms", type=float, default=SLEEP_MS)
    options = parser.parse_args()
    rank, ranks, device = common.start()
    both = list(range(ranks))
    tensor = dist.new_group(both, group_desc="tp")
    data = dist.new_group(both, group_desc="dp")
    pipe = dist.new_group(both, group_desc="pp")

    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    x, weights = make(WIDTH, WIDTH), [make(WIDTH, WIDTH) / 64 for _ in range(LAYERS)]
    gradients = [make(8 * MIB) for _ in range(LAYERS)]  # 16 MiB each
    shards = [make(2 * MIB) for _ in range(LAYERS)]  # 4 MiB each, 8 MiB gathered
    gathered = [make(4 * MIB) for _ in range(LAYERS)]
    received, other = torch.empty_like(x), torch.empty_like(x)  # 32 MiB

    def forward(y):
        for weight in weights:
            y = y @ weight
            dist.all_reduce(y, group=tensor)  # 32 MiB
            y = y / 2
        return y

    def backward(y, number):
        work = []
        for layer, weight in enumerate(reversed(weights)):
            y = y @ weight.T
            dist.all_reduce(y, group=tensor)  # 32 MiB
            y = y / 2
            gradients[layer].mul_(0.5)
            if layer == LAYERS - 1:
                last_gradient(rank, number, options.sleep_ms)
            work.append(dist.all_reduce(gradients[layer], group=data, async_op=True))  # 16 MiB
        for each in work:
            each.wait()
        return y

    def step(number):
        with Part("pipeline"):
            if rank == 0:
                dist.send(x, 1, group=pipe)  # 32 MiB
            else:
                dist.recv(received, 0, group=pipe)
        with Part("forward"):
            y = forward(x if rank == 0 else received)
        with Part("exchange"):  # both ways, coalesced: 32 MiB each
            peer = 1 - rank
            messages = [
                dist.P2POp(dist.isend, y, peer, pipe),
                dist.P2POp(dist.irecv, other, peer, pipe),
            ]
            for each in dist.batch_isend_irecv(messages):
                each.wait()
        with Part("backward"):
            y = backward(other, number)
        with Part("optimizer"):
            for gradient in gradients:
                gradient.mul_(0.9)
            with dist._coalescing_manager(group=data, device=device, async_ops=True) as all_of_them:
                for shard, whole in zip(shards, gathered, strict=True):
                    dist.all_gather_into_tensor(whole, shard, group=data, async_op=True)
            all_of_them.wait()
        y.float().mean().item()

    common.loop(rank, options.steps, step)
    common.end()


if __name__ == "__main__":
    main()
