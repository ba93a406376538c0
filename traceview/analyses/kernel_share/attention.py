"""Attention whose softmax runs between two matrix products: fused kernels keep it on the chip.

Unfused, the scores of all pairs of positions are written and read several times: scaled, masked,
cast, normalized, dropped. A fused kernel does this between its two products, so the kernels between
the GEMMs disappear. With bf16 or fp16 products at least their time is saved, with fp32 products at
most that, since fused kernels multiply fp32 more slowly (measured: docs/accuracy.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.analyses.kernel_share.elementwise import steady_in_order
from traceview.facts.operations.frameworks import terms
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import class_claim, costliest_gpu, named, steady
from traceview.tables import Integers, Mask, RowNumbers
from traceview.trace import Trace, fact
from traceview.vocabulary.libraries import tile

# Kernels of scaling, masks, casts and dropout.
_BETWEEN = (
    KernelClass.ELEMENTWISE,
    KernelClass.CAST_COPY,
    KernelClass.RANDOM,
    KernelClass.SOFTMAX,
)
_MOST_BETWEEN = 8
_LEAST_SOFTMAXES = 2
_NARROW = re.compile(r"b?f\d?16|[fsu]8|e\dm\d")
_IN_FP32 = " In bf16 or fp16 that saves more than in fp32."
# Of a loss or of a sampler.
_NOT_ATTENTION = (
    r"(?i)log_?soft|nll_loss|cross_?entropy|softmax_warp_(?:forward|backward)<[^<>]*, "
    r"(?:\(bool\)1|true), (?:\(bool\)[01]|true|false)>"
)
_IN_PROGRAM = (
    (
        "torch/nn/functional.py",
        "multi_head_attention_forward",
        "Call nn.MultiheadAttention with need_weights=False where its weights are not used: then "
        "it runs a fused kernel.",
    ),
    (
        "transformers/",
        "eager_attention_forward",
        'Load the model with attn_implementation="sdpa" (or "flash_attention_2").',
    ),
)


def _unfused(trace: Trace) -> Iterator[TimeClaim]:
    kernels = trace.recorded("kernels")
    for device, rows in costliest_gpu(trace, steady(trace, unfused_attention(trace))):
        softmax = np.count_nonzero(kernel_classes(trace)[rows] == KernelClass.SOFTMAX)
        claim = class_claim(trace, device, rows, {"softmaxes": int(softmax)})
        narrow = _NARROW.match(_inputs(trace, rows))
        yield replace(
            claim,
            row={**claim.row, "class": KernelClass.SOFTMAX.label},
            window=(int(kernels["start_ns"][rows].min()), int(kernels["end_ns"][rows].max())),
            remedy=_remedy(trace) + ("" if narrow else _IN_FP32),
            saving="at-least" if narrow else "at-most",
        )


UNFUSED_ATTENTION = FindingRule(
    _unfused,
    "Attention is not fused. {softmaxes:softmax|softmaxes} run between two GEMMs each, and the "
    "{kernels:kernel} between these take {total_ns} ({total_pct} of kernel time after warm-up). A "
    "fused kernel needs none of them.",
)


def unfused_attention(trace: Trace) -> Mask:
    """True for the steady kernels between the two products of an attention that is not fused."""
    return _products(trace) >= 0


@fact
def _products(trace: Trace) -> RowNumbers:
    """For each kernel between the products of an attention, the first product's row; else −1."""
    result = np.full(len(trace.recorded("kernels")), -1, np.int32)
    rows, opens = steady_in_order(trace)
    kinds = kernel_classes(trace)[rows]
    if not (kinds == KernelClass.SOFTMAX).any():
        return result
    between = np.isin(kinds, _BETWEEN)
    run = np.cumsum(opens | groups.opens(between)) - 1
    first = np.flatnonzero(groups.opens(run))
    count = np.diff(np.append(first, len(run)))
    softmax = np.bincount(run, kinds == KernelClass.SOFTMAX)
    other = np.bincount(run, named(trace, _NOT_ATTENTION)[rows])
    last = first + count - 1
    # A product before and after it, on the same stream and in the same step.
    after = np.minimum(last + 1, len(rows) - 1)
    products = (
        (kinds[first - 1] == KernelClass.GEMM)
        & (kinds[after] == KernelClass.GEMM)
        & ~opens[first]
        & ~opens[after]
        & (first > 0)
        & (last + 1 < len(rows))
    )
    unfused = between[first] & products & (softmax == 1) & (other == 0) & (count <= _MOST_BETWEEN)
    # A copy of results, or of the next input, separates two passes.
    start = trace.recorded("kernels")["start_ns"][rows]
    unfused &= ~_copied(trace, start[first - 1], start[after])
    if np.count_nonzero(unfused) >= _LEAST_SOFTMAXES:
        is_unfused = unfused[run]
        result[rows[is_unfused]] = rows[first - 1][run[is_unfused]]
    return result


def _inputs(trace: Trace, between: RowNumbers) -> str:
    """The type that most products of attention multiply, as their kernels name it."""
    names = trace.recorded("kernels").texts("name")
    codes = names.codes[_products(trace)[between]]
    of = tile(str(names.values[np.argmax(np.bincount(codes))]))
    return (of and of.inputs) or ""


def _copied(trace: Trace, start: Integers, end: Integers) -> Mask:
    """True for the times [start, end) in which a copy between host and GPU begins."""
    copies = trace.recorded("copies")
    begun = np.sort(copies["start_ns"][copies.texts("direction").isin(["H2D", "D2H"])])
    result: Mask = np.searchsorted(begun, end) > np.searchsorted(begun, start)
    return result


def _remedy(trace: Trace) -> str:
    """The remedy, by the attention function that Python samples show, if any."""
    frames = trace.recorded("python_frames")
    for folder, function, remedy in _IN_PROGRAM:
        named = np.flatnonzero(frames.texts("function").isin([function]))
        if any(folder in str(file) for file in set(frames.texts("file").take(named).decode())):
            return remedy
    return terms(trace).attention
