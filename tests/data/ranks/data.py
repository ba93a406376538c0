"""Batches for the training programs; what one rank may do late is in here."""

import time

import torch


class Batches:
    def __init__(self, tokens, batch, length, options, rank):
        generator = torch.Generator().manual_seed(rank)
        self.all = [
            torch.randint(0, tokens, (batch, length), generator=generator) for _ in range(4)
        ]
        self.options, self.late, self.number = options, rank == options.late_rank, 0

    def augment(self, batch):
        end = time.perf_counter() + self.options.busy_ms / 1e3
        while time.perf_counter() < end:
            batch = batch.roll(1, 1)
        return batch

    def next(self):
        self.number += 1
        batch = self.all[self.number % 4]
        if self.late and self.options.sleep_ms and self.number % self.options.every == 0:
            time.sleep(self.options.sleep_ms / 1e3)
        if self.late and self.options.busy_ms:
            batch = self.augment(batch)
        return batch.cuda(non_blocking=True)
