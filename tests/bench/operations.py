"""An operation with versions that are right, and versions that fail in every possible way."""

import torch

from traceview.base.errors import InputError
from traceview.trials.bench import Operation, Version


def inputs(size, dtype, device, rows: int | None = None, exact: bool = True, factor: float = 2):
    size = size * (rows or 1)
    made = torch.Generator(device=device).manual_seed(0)
    return (torch.randn(size, generator=made, device=device).to(dtype), 2)


def double(x, factor):
    return x * factor


def wrong(x, factor):
    return x * factor + 1


def wrong_at_odd_sizes(x, factor):
    result = x * factor
    result[x.numel() // 2 * 2 :] = 0
    return result


def in_place(x, factor):
    return x.mul_(factor)


def nan(x, factor):
    return x * factor / 0 * 0


def shape(x, factor):
    return (x * factor)[:-1]


def several(x, factor):
    return x * factor, x


def failing(x, factor):
    raise RuntimeError("no kernel image is available\nfor execution")


def check(x, factor):
    if not x.is_contiguous():
        raise InputError("double takes a contiguous tensor")


VERSIONS = (
    Version("manual", double, note="one operation"),
    Version("wrong", wrong),
    Version("wrong-at-odd-sizes", wrong_at_odd_sizes),
    Version("in-place", in_place),
    Version("nan", nan),
    Version("shape", shape),
    Version("several", several),
    Version("failing", failing),
    Version("cuda", double, "cuda"),
    Version("fp32-only", double, supports=lambda x, _: x.dtype == torch.float32),
    Version("after", double),
)
OPERATION = Operation(
    name="double",
    title="Twice each number",
    inputs=inputs,
    reference=double,
    versions=VERSIONS,
    bytes_moved=lambda x, _: 2 * x.numel() * x.element_size(),
    flop=lambda x, _: x.numel(),
    sizes=(1 << 20,),
    small_sizes=(17, 1024),
    tolerances={"float32": 1e-6, "bfloat16": 1e-2},
    check=check,
)
