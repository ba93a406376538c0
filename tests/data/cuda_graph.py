"""A CUDA graph of twelve kernels, replayed in steps: source of graph_whole and graph_nodes."""

import torch

x = torch.randn(1 << 20, device="cuda")


def work() -> None:
    for _ in range(12):
        x.mul_(1.0001)


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    work()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    work()
for step in range(10):
    with torch.cuda.nvtx.range(f"step_{step}"):
        graph.replay()
        x.add_(1.0)
torch.cuda.synchronize()
