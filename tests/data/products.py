"""Half-precision products of many shapes, with their shapes in autograd's ranges. Seconds.

    traceview record --shapes --no-kernels --backtrace none tests/data/products.py

Small and oblong ones, whose grids tell which side of a tile lies along which side of the result;
then a sweep over the rows, as a batch grows, of a layer 4,096 wide.
"""

import torch

OBLONG = (
    *((256, 1024, 4096), (4096, 1024, 256), (384, 1024, 2048), (2048, 1024, 384)),
    *((640, 512, 1536), (1536, 512, 640), (128, 4096, 8192), (8192, 4096, 128)),
)
ROWS = range(2048, 8193, 256)
WIDTH = 4096
TIMES = 4


def multiply(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b = torch.randn(k, n, device="cuda", dtype=dtype)
    for _ in range(TIMES):
        torch.mm(a, b)


def main() -> None:
    torch.manual_seed(0)
    multiply(1024, 1024, 1024, torch.bfloat16)
    torch.cuda.synchronize()
    with torch.cuda.nvtx.range("oblong"):
        for sides in OBLONG:
            multiply(*sides, torch.bfloat16)
    with torch.cuda.nvtx.range("rows"):
        for rows in ROWS:
            multiply(rows, WIDTH, WIDTH, torch.bfloat16)
    with torch.cuda.nvtx.range("batches"):
        for batch in (3, 5, 12):
            a = torch.randn(batch, 512, 768, device="cuda", dtype=torch.bfloat16)
            for _ in range(TIMES):
                torch.bmm(a, a.transpose(1, 2))
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
