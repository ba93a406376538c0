"""Sentences about products of fp32 matrices that leave the tensor cores idle."""

from __future__ import annotations

from collections.abc import Sequence

from traceview import units
from traceview.analyses.kernel_share.fp32_gemms import Fp32Products
from traceview.findings import shortened

_TF32 = (
    "Use TF32 where its 10 bits of mantissa are accurate enough: "
    "torch.set_float32_matmul_precision('high'), or CUPY_TF32=1 with CuPy; or torch.autocast to "
    "bf16, which is faster still."
)
_BF16 = "Use torch.autocast to bf16 where its 7 bits of mantissa are accurate enough."


def message(found: Sequence[Fp32Products], steady_ns: int) -> str:
    """What they take of the kernels' time after set-up, all GPUs together."""
    time = sum(each.time_ns for each in found)
    most = _most(found)
    more = (
        f" and {units.counted(others, 'other kernel')}" if (others := len(most.labels) - 1) else ""
    )
    return (
        f"{units.percent(100 * time / steady_ns)} of kernel time after set-up "
        f"({units.duration(time)}) is in products of fp32 matrices on the ordinary lanes "
        f"({shortened(most.labels[0])}{more}): {_faster(most)}"
    )


def _faster(products: Fp32Products) -> str:
    kind, lanes, rate = products.kind, products.fp32_flop_per_s, products.flop_per_s
    if not (kind and lanes and rate):
        return "they leave the tensor cores idle"
    told, peak = (units.quantity("flop_per_s", round(each)) for each in (rate, lanes))
    return (
        f"the tensor cores do up to {told} in {_said(kind)}, {rate / lanes:.1f} times as much as "
        f"these lanes with {peak}"
    )


def action(found: Sequence[Fp32Products]) -> str:
    """The type to multiply instead."""
    return _BF16 if _most(found).kind == "bf16" else _TF32


def _most(found: Sequence[Fp32Products]) -> Fp32Products:
    return max(found, key=lambda each: each.time_ns)


def _said(kind: str) -> str:
    return "TF32" if kind == "tf32" else kind
