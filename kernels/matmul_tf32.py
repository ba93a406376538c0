"""Matrix product of fp32 where TF32 is allowed: 10 bits of mantissa instead of 23, on tensor cores.

The bytes are the same; the products are rounded before they are made, and summed in fp32. That is
torch.set_float32_matmul_precision("high"). Beside it three products of TF32 that give nearly fp32.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels import matmul
from traceview.trials.bench.operation import Operation, Version


def with_torch(a: Tensor, b: Tensor) -> Tensor:
    """cuBLAS with TF32 allowed, whatever torch is set to."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


def exact(a: Tensor, b: Tensor) -> Tensor:
    """cuBLAS without tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


grouped = partial(matmul.grouped, precision="tf32")
three_products = partial(matmul.grouped, precision="tf32x3")
persistent = partial(matmul.persistent, precision="tf32")

OPERATION = Operation(
    name="matmul_tf32",
    title="matrix product of fp32, TF32 allowed",
    inputs=matmul.inputs,
    reference=torch.matmul,
    versions=(
        Version("torch-fp32", exact, note="cuBLAS without tensor cores"),
        Version("triton-tf32x3", three_products, "triton", kernels=(matmul.grouped_kernel,)),
        Version("triton-tf32", grouped, "triton", kernels=(matmul.grouped_kernel,)),
        Version(
            "triton-persistent",
            persistent,
            "triton",
            "TF32, one block per SM, TMA",
            (matmul.persistent_kernel,),
            supports=matmul.is_for_tma,
        ),
        Version("torch-tf32", with_torch, note="cuBLAS, TF32"),
    ),
    bytes_moved=matmul.bytes_moved,
    flop=matmul.flop,
    sizes=(1024, 4096, 8192),
    small_sizes=(33, 64),
    tolerances={"float32": 1e-3},
    check=matmul.check,
    size_means="rows and columns",
    tensor_cores=True,
)
