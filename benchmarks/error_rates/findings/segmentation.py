"""Trains a network like DeepLabV3 on ResNet-50 in fp32 and NCHW: bf16, and channels_last."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.error_rates.findings.parts import in_bf16, sized, training
from benchmarks.error_rates.what_if.parts import Step


def conv(inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (size // 2)
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(inputs, width, 1),
            conv(width, width, 3, stride, dilation),
            conv(width, 4 * width, 1),
        )
        same = inputs == 4 * width
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, 4 * width, 1, stride)

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.skip(x)


class DeepLab(nn.Module):
    def __init__(self, depths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for depth, width, stride, dilation in zip(
            depths, (64, 128, 256, 512), (1, 2, 1, 1), (1, 1, 2, 4), strict=True
        ):
            for number in range(depth):
                layers.append(Bottleneck(inputs, width, 1 if number else stride, dilation))
                inputs = 4 * width
        self.backbone = nn.Sequential(*layers)
        rates = ((1, 1), (3, 12), (3, 24), (3, 36))
        self.pyramid = nn.ModuleList(conv(2_048, 256, size, 1, rate) for size, rate in rates)
        self.head = nn.Sequential(conv(1_024, 256, 1), conv(256, 256, 3), nn.Conv2d(256, 21, 1))

    def forward(self, x: Any) -> Any:
        deep = self.backbone(x)
        scores = self.head(torch.cat([each(deep) for each in self.pyramid], 1))
        return functional.interpolate(scores, size=x.shape[-2:], mode="bilinear")


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(11)
    depths, images, size = sized(device, ((3, 4, 6, 3), 8, 224), ((1, 1, 1, 1), 2, 32))
    model = DeepLab(depths).to(device)
    x = torch.randn(images, 3, size, size, device=device)
    y = torch.randint(21, (images, size, size), device=device)
    if "channels_last" in remedies:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )

    def loss() -> Any:
        return functional.cross_entropy(model(x), y)

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return training(in_bf16(device, loss) if "bf16" in remedies else loss, optimizer)
