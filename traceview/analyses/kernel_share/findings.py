"""Findings of kernel-share: fp32 GEMMs off the tensor cores, and the kernel to start with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview import groups
from traceview.analyses.kernel_share.fp32_gemms import Fp32Gemms
from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.tables import Integers, Mask, Texts

_LEAST_GEMM_FRACTION = 0.10
_WORTH_COUNTING_PCT = 80.0
_USE_TF32 = (
    "Use TF32 where a 10-bit mantissa is accurate enough: "
    "torch.set_float32_matmul_precision('high'), or CUPY_TF32=1 for CuPy. torch.autocast to bf16 "
    "is faster still."
)
_USE_BF16 = "Use torch.autocast to bf16 where a 7-bit mantissa is accurate enough."
_KIND_NAMES = {"tf32": "TF32", "bf16": "bf16"}


def gemm_findings(gemms: Sequence[Fp32Gemms], kernel_ns: int, span_ns: int) -> Iterator[Finding]:
    """One finding on the fp32 GEMMs of all GPUs, where they take a tenth of the kernel time.

    `kernel_ns` is the time of all kernels after warm-up, `span_ns` the steady time of the GPUs.
    """
    if not gemms:
        return
    saved_ns = sum(each.saved_ns or 0 for each in gemms)
    rates_known = any(each.kind for each in gemms)
    severity = severity_of(saved_ns, span_ns) if rates_known else "info"
    gemm_ns = sum(each.time_ns for each in gemms)
    if not severity or gemm_ns < _LEAST_GEMM_FRACTION * kernel_ns:
        return
    most = max(gemms, key=lambda each: each.time_ns)
    values = {
        "gemm_ns": gemm_ns,
        "gemm_pct": 100 * gemm_ns / kernel_ns,
        "kernels": sum(len(each.names) for each in gemms),
    }
    template = (
        "fp32 GEMMs take {gemm_ns} ({gemm_pct} of kernel time after warm-up) and do not use the "
        "tensor cores"
    )
    if most.kind and most.fp32_flop_per_s and most.flop_per_s:
        template += f"; {_KIND_NAMES[most.kind]} is up to {{speedup_factor}} faster"
        values |= {
            "speedup_factor": most.flop_per_s / most.fp32_flop_per_s,
            "peak_flop_per_s": most.flop_per_s,
            "fp32_peak_flop_per_s": most.fp32_flop_per_s,
        }
    yield Finding(
        severity,
        f"{template}.",
        _USE_BF16 if most.kind == "bf16" else _USE_TF32,
        saved_ns,
        Subject("kernel", most.names[0]),
        Evidence(values, "kernels", {"name": most.names[0]}),
        share_pct(saved_ns, span_ns),
    )


def largest_kernel(
    names: Texts, labels: Texts, duration_ns: Integers, steady: Mask, span_ns: int
) -> Iterator[Finding]:
    """The kernel with most time after warm-up; of all time where nothing else was launched.

    One entry per launch; `steady` is False for launches of warm-up.
    """
    after_warm_up = bool(steady.any() and not steady.all())
    rows = np.flatnonzero(steady) if after_warm_up else np.arange(len(steady))
    kernels = groups.group(names.codes[rows])
    total_ns = groups.sums(kernels, duration_ns[rows])
    if not total_ns.any():
        return
    order = groups.most_first(total_ns)
    first, largest_ns = int(rows[kernels.first[order[0]]]), int(total_ns[order[0]])
    pct = 100.0 * total_ns[order] / total_ns.sum()
    top = int(np.searchsorted(np.cumsum(pct), _WORTH_COUNTING_PCT)) + 1
    template = "{kernel} takes {kernel_ns}, {kernel_pct} of kernel time"
    template += " after warm-up." if after_warm_up else "."
    if len(pct) > top > 1:
        template += " The top {top_kernels} of {all_kernels} kernels take {top_pct}."
    yield Finding(
        "info",
        template,
        "Start with that kernel: make it faster, or fuse it with its neighbours. At most "
        "{kernel_ns} can be saved.",
        largest_ns,
        Subject("kernel", str(names[first])),
        Evidence(
            {
                "kernel": labels[first],
                "kernel_ns": largest_ns,
                "kernel_pct": float(pct[0]),
                "top_kernels": top,
                "all_kernels": len(pct),
                "top_pct": float(pct[:top].sum()),
            },
            "kernels",
            {"name": str(names[first])},
        ),
        share_pct(largest_ns, span_ns),
    )
