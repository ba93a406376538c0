"""Products with shapes in autograd's ranges, one declared range, one with a payload. Seconds.

traceview record --nsys-option=--pytorch=autograd-shapes-nvtx -o shapes.sqlite tests/data/shapes.py
"""

import nvtx
import torch


def main():
    a = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(2048, 8192, device="cuda", dtype=torch.bfloat16)
    layer = torch.nn.Linear(2048, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        torch.mm(a, b)
        torch.bmm(a.view(4, 1024, 2048), b.expand(4, 2048, 8192))
        layer(a).sum().backward()
    x = torch.randn(1 << 28, device="cuda")
    with torch.cuda.nvtx.range(
        "{}", 'gelu {"bytes": 2147483648, "flop": 3489660928, "kind": "fp32"}'
    ):
        torch.nn.functional.gelu(x)
    work = 'relu {"bytes": "payload", "flop_per_byte": 0.125}'
    with nvtx.annotate(work, payload=2 * x.nbytes):
        torch.relu(x)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
