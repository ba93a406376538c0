"""Data-parallel training of a transformer. Rank 1 may sleep, compute, or get more work."""

import common
import torch
from data import Batches
from torch import nn


def main():
    options = common.options()
    rank, _ranks, device = common.start()
    batch = (
        options.late_batch if options.late_batch and rank == options.late_rank else options.batch
    )
    model = common.Model(layers=options.layers).to(device).bfloat16()
    model = nn.parallel.DistributedDataParallel(
        model, device_ids=[device], bucket_cap_mb=options.bucket_mb
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    batches = Batches(8192, batch, 512, options, rank)

    def step(number):
        x = batches.next()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if options.read_loss:
            loss.item()

    common.loop(rank, options.steps, step)
    common.end()


if __name__ == "__main__":
    main()
