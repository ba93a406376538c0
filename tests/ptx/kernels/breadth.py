"""Much of what scripts for a GPU do: descriptors, tuples, heuristics, graphs, defaults, Dynamo."""

import torch
import torch._dynamo.variables  # lists torch.cuda's functions by identity
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tma_copy(source, target, SIZE: tl.constexpr):
    row = tl.program_id(0) * SIZE
    target.store([row, 0], source.load([row, 0]))


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def cast(x_ptr, y_ptr, n, TYPE: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets) if EVEN else tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x.to(TYPE), mask=offsets < n)


@triton.jit
def of_tuple(pointers, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(pointers[1] + offsets, mask=offsets < n)
    tl.store(pointers[0] + offsets, x, mask=offsets < n)


if __name__ == "__main__":
    with torch.device("cuda"):
        a = torch.randn(256, 64)
    torch.set_default_device("cuda")
    b = torch.empty(256, 64)
    torch.randn(3, generator=torch.Generator(device="cuda").manual_seed(0), device="cuda")
    squares = [TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (a, b)]
    tma_copy[(4,)](*squares, 64)
    flat = a.view(-1)
    cast[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](flat, flat.half(), 4096, tl.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        of_tuple[(1,)]((a, b), 100, 128)
    graph.replay()
    with torch.cuda.device(a.device):
        of_tuple.warmup((a[0, 1:], b), 100, 64, grid=(1,))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        layer = torch.nn.Linear(64, 64).to("cuda")
        layer(a).sum().backward()
    torch.optim.AdamW(layer.parameters()).step()
    print(a)
