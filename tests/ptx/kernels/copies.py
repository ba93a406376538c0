"""Kernels without a launch: a strided copy, a gather, a reduction with helpers, atomics."""

import triton
import triton.language as tl


@triton.jit
def strided_copy(src_ptr, dst_ptr, n_elements, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(src_ptr + offsets * stride, mask=offsets < n_elements)
    tl.store(dst_ptr + offsets, values, mask=offsets < n_elements)


@triton.jit
def gather(table, index, out, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(index + offsets, mask=offsets < n_elements)
    tl.store(out + offsets, tl.load(table + rows), mask=offsets < n_elements)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _fetch(base, offsets, limit):
    return tl.load(base + offsets, mask=offsets < limit, other=0.0)


@triton.jit
def row_sum(values, sums, n_cols, eps, BLOCK: tl.constexpr = 512):
    row = tl.program_id(0)
    x = _fetch(values + row * n_cols, tl.arange(0, BLOCK), n_cols)
    tl.store(sums + row, tl.reduce(x, 0, _add) + eps)


@triton.jit
def histogram(data_ptr, count_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(data_ptr + offsets, mask=offsets < n_elements)
    tl.atomic_add(count_ptr + bins, 1, mask=offsets < n_elements)
