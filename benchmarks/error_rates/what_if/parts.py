"""What several of the programs use: a step as a CUDA graph, an operation alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], Any]
Alone = dict[str, tuple[Step, Step | None]]
"""Operations alone, by name: as the fault has them, and as a remedy does (None: not at all)."""


def captured(step: Step, device: str) -> Step:
    """The step as a CUDA graph, which has run it three times before; the step itself on a CPU."""
    if device == "cpu":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def trained(layer: Callable[..., Any], *inputs: Any) -> Step:
    """The forward and backward pass of one layer, with the gradients of its inputs and weights."""
    leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in inputs]
    weights = list(layer.parameters()) if isinstance(layer, torch.nn.Module) else []
    wanted = [each for each in leaves if each.requires_grad] + weights
    gradient = torch.ones_like(layer(*leaves))
    return lambda: torch.autograd.grad(layer(*leaves), wanted, gradient)
