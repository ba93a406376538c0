"""All-reduces through symmetric memory (no NCCL) between matrix products."""

import common
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def main():
    options = common.options()
    rank, _ranks, device = common.start()
    group = dist.group.WORLD.group_name
    buffer = symm_mem.empty(1024 * 1024, dtype=torch.bfloat16, device=device)
    symm_mem.rendezvous(buffer, group)
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    def step(number):
        for _ in range(4):
            y = a @ a
            buffer.copy_(y.flatten()[: buffer.numel()])
            torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", group)
            torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", group)

    common.loop(rank, options.steps, step)
    common.end()


if __name__ == "__main__":
    main()
