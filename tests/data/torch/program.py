"""A small training loop, profiled with all that its torch offers, into the file that is named."""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def train_step(model, optimizer, x):
    with record_function("forward"):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(16, 32)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        for _ in range(5):
            train_step(model, optimizer, x)
            profiler.step()
    profiler.export_chrome_trace(path)


main(sys.argv[1])
