"""Alignment: squaring a matrix of 2048 columns, and one of 2049, which is much slower.

A thread can load 128 bits at once only from an address divisible by 16. With 2048 columns every
row starts at one. With 2049 float32 columns each row starts 4 bytes later than the one before, and
three of four do not. One kernel is compiled for all rows, so every access is 32 bits wide. Two
ways out:

- padding: store the rows 2064 columns apart, and compute the 15 extra ones. That is
  0.7 % more traffic, at 128 bits again;
- if the operation allows it, ignore the rows: the matrix is one row of 2049 · 32,768 elements,
  and that is divisible by 16.

    traceview ptx kernels/alignment.py      shows the widths of all three, for 2048 and for 2049
    traceview bench kernels/alignment.py    shows what they cost
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks
from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation, Version

MULTIPLE = 16
"""Triton looks at whether numbers are divisible by 16: enough for 128 bits of any type."""
ROWS_ON_A_GPU, ROWS_ON_A_CPU = 1 << 15, 16


def reference(x: Tensor, _: Tensor) -> Tensor:
    """torch's own. It sees that the matrix has no holes, and takes it as one line."""
    return x * x


@triton.jit
def square_rows_kernel(x, y, columns, BLOCK: tl.constexpr = 1024):
    # Where a row begins depends on `columns`: if that is divisible by 16, so is the offset of each
    # row, and a thread's four neighbours are loaded together. If not, one by one. The mask matters
    # likewise: only with `columns` divisible by 16 is it the same for all of a thread's neighbours.
    # One axis for rows and blocks of a row: the others end at 65,535.
    blocks = tl.cdiv(columns, BLOCK)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(0) // blocks * columns + column
    v = tl.load(x + place, column < columns).to(tl.float32)
    tl.store(y + place, v * v, column < columns)


def square_rows(x: Tensor) -> Tensor:
    """Squares, in blocks that do not reach from one row into the next."""
    y = torch.empty_like(x)
    rows, columns = x.shape
    block = 4096 // x.element_size()
    grid = (rows * triton.cdiv(columns, block),)
    square_rows_kernel[grid](x, y, columns, BLOCK=block, num_warps=4)
    return y


def tight(x: Tensor, _: Tensor) -> Tensor:
    """Triton, rows as they are: 128 bits if the columns are divisible by 16, else one by one."""
    return square_rows(x)


def padded(x: Tensor, wide: Tensor) -> Tensor:
    """Triton, the same kernel over the padded rows: always 128 bits. A view hides the padding."""
    return square_rows(wide)[:, : x.shape[1]]


def flat(x: Tensor, _: Tensor) -> Tensor:
    """Triton, the same kernel over one long row, if its length is divisible by 16."""
    return square_rows(x.view(1, -1)).view_as(x)


def inputs(size: int, dtype: Any, device: str) -> tuple[Tensor, Tensor]:
    """A matrix of `size` columns, and the same with its columns padded to a multiple of 16."""
    rows = ROWS_ON_A_GPU if device.startswith("cuda") else ROWS_ON_A_CPU
    made = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(rows, size, generator=made, device=device, dtype=torch.float32).to(dtype)
    width = triton.cdiv(size, MULTIPLE) * MULTIPLE
    return x, torch.nn.functional.pad(x, (0, width - size)).contiguous()


def check(x: Tensor, wide: Tensor) -> None:
    """A contiguous matrix, and another that begins with its columns and is padded."""
    for name, matrix in (("x", x), ("wide", wide)):
        checks.tensor("alignment", name, matrix)
        checks.floating("alignment", name, matrix)
        checks.matrix("alignment", name, matrix)
    checks.same_kind("alignment", x, wide, "x and wide")
    if x.shape[0] != wide.shape[0] or x.shape[1] > wide.shape[1]:
        what = f"alignment: wide is {tuple(wide.shape)} where x is {tuple(x.shape)}"
        raise InputError(what, "pad the columns of x alone: torch.nn.functional.pad(x, (0, more))")


def bytes_moved(x: Tensor, _: Tensor) -> int:
    """Each element of x is read once and written once. The padding counts for nothing."""
    return 2 * x.numel() * x.element_size()


def flop(x: Tensor, _: Tensor) -> int:
    """One product per element."""
    return x.numel()


def is_divisible(x: Tensor, _: Tensor) -> bool:
    """One long row helps if its length is divisible by 16."""
    return x.numel() % MULTIPLE == 0


OPERATION = Operation(
    name="alignment",
    title="Squares of aligned, unaligned and padded rows",
    inputs=inputs,
    reference=reference,
    versions=(
        Version("triton-tight", tight, "triton", "rows as they are", kernels=(square_rows_kernel,)),
        Version(
            "triton-padded",
            padded,
            "triton",
            "rows padded to a multiple of 16",
            kernels=(square_rows_kernel,),
        ),
        Version(
            "triton-flat",
            flat,
            "triton",
            "all in one row",
            kernels=(square_rows_kernel,),
            supports=is_divisible,
        ),
        Version("torch", reference, note="x * x"),
    ),
    bytes_moved=bytes_moved,
    flop=flop,
    sizes=(2048, 2049),
    small_sizes=(1, 33, 2048, 2049),
    tolerances={"float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3},
    check=check,
    size_means="columns",
)

if __name__ == "__main__":
    # For `traceview ptx`, which shows the kernels that a script launches: 16 rows are enough.
    for columns in OPERATION.sizes:
        x = torch.empty(ROWS_ON_A_CPU, columns, device="cuda")
        wide = torch.empty(ROWS_ON_A_CPU, triton.cdiv(columns, MULTIPLE) * MULTIPLE, device="cuda")
        for version in ("triton-tight", "triton-padded", "triton-flat"):
            OPERATION.version(version).run(x, wide)
