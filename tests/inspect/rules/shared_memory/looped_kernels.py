# ruff: noqa: N803 (constexprs are written in capitals)
"""Kernels that reduce a block in each iteration of a loop."""

import triton
import triton.language as tl


@triton.jit
def picked(index_ptr, x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    indices = tl.load(index_ptr + offsets, mask=offsets < count)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(count):
        row = tl.sum(tl.where(offsets == k, indices, 0))
        total += tl.load(x_ptr + row * BLOCK + offsets)
    tl.store(y_ptr + offsets, total)


@triton.jit
def summed(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, count, BLOCK):
        total += tl.sum(tl.load(x_ptr + start + offsets))
    tl.store(y_ptr, total)


@triton.jit
def summed_after(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        total += tl.load(x_ptr + start + offsets)
    tl.store(y_ptr, tl.sum(total))


@triton.jit
def column_sums(x_ptr, y_ptr, count, stride, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, 16):
        total += tl.sum(tl.load(x_ptr + (start + rows) * stride + columns[None, :]), 0)
    tl.store(y_ptr + columns, total)


@triton.jit
def normalized(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for start in range(0, count, BLOCK):
        x = tl.load(x_ptr + start + offsets)
        tl.store(y_ptr + start + offsets, x - tl.sum(x) / BLOCK)


@triton.jit
def recurrent(x_ptr, y_ptr, count, BLOCK: tl.constexpr, KIND: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = 0.0
    most = float("-inf")
    for start in range(0, count, BLOCK):
        x = tl.load(x_ptr + start + offsets)
        if KIND == "added":
            total += tl.sum(x)
        if KIND == "scaled":
            total = 0.5 * total + tl.sum(x)
        if KIND == "largest":
            most = tl.maximum(most, tl.max(x))
        if KIND == "replaced":
            total = tl.sum(x)
        if KIND == "replaced by itself":
            total = tl.sum(x * total)
        if KIND == "of a product":
            total = total * tl.load(x_ptr) + tl.sum(x)
            tl.store(y_ptr + start + offsets, x * total)
        if KIND == "added elsewhere":
            tl.store(y_ptr + start + offsets, x + total)
            total += tl.sum(x)
        if KIND == "softmax":
            new = tl.maximum(most, tl.max(x))
            total = total * tl.exp(most - new) + tl.sum(tl.exp(x - new))
            most = new
    tl.store(y_ptr, total + most)


@triton.jit
def total(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + offsets)))


@triton.jit
def standardized(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for start in range(0, count, BLOCK):
        x = tl.load(x_ptr + start + offsets)
        for _ in tl.static_range(4):
            x -= tl.sum(x * x) / BLOCK
        tl.store(y_ptr + start + offsets, x)
