"""Two pipeline stages, 1F1B; the second stage has twice the layers."""

import common
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Stage(nn.Module):
    def __init__(self, layers, width=1024):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def main():
    options = common.options()
    rank, ranks, device = common.start()
    stage_module = Stage(4 if rank == 0 else 8).to(device).bfloat16()
    x = torch.randn(8, 512, 1024, device=device, dtype=torch.bfloat16)
    stage = PipelineStage(stage_module, rank, ranks, device)
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, t: (y - t).float().square().mean())
    optimizer = torch.optim.AdamW(stage_module.parameters(), 1e-4)

    def step(number):
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    common.loop(rank, options.steps, step)
    common.end()


if __name__ == "__main__":
    main()
