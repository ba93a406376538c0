"""Findings of kernel-share on GEMMs: fp32 off the tensor cores, and unaligned matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.analyses.gpu_wording import gain_sentence, severity_of_part
from traceview.analyses.kernel_share.fp32_gemms import Fp32Gemms
from traceview.analyses.kernel_share.unaligned_gemms import unaligned_gemms
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.findings import Evidence, Finding, Subject, share_pct
from traceview.trace import Trace
from traceview.units import Value
from traceview.vocabulary.frameworks import Framework

_LEAST_GEMM_FRACTION = 0.10
_KIND_NAMES = {"tf32": "TF32", "bf16": "bf16"}


def gemm_findings(
    gemms: Sequence[Fp32Gemms], kernel_ns: int, span_ns: int, used: Framework
) -> Iterator[Finding]:
    """One finding on the fp32 GEMMs of all GPUs, where they take a tenth of the kernel time.

    `kernel_ns` is the time of all kernels after warm-up, `span_ns` the steady time of the GPUs.
    """
    if not gemms:
        return
    # GPUs that compute at the same time save the time of the program once.
    less_ns = max(each.gain_ns or 0 for each in gemms)
    saved_ns = max(each.claimed_ns or 0 for each in gemms)
    rates_known = any(each.kind for each in gemms)
    severity = severity_of_part(saved_ns, less_ns, span_ns) if rates_known else "info"
    gemm_ns = sum(each.time_ns for each in gemms)
    if not severity or not gemm_ns or gemm_ns < _LEAST_GEMM_FRACTION * kernel_ns:
        return
    most = max(gemms, key=lambda each: each.time_ns)
    values: dict[str, Value] = {
        "gemm_ns": gemm_ns,
        "gemm_pct": 100 * gemm_ns / kernel_ns,
        "kernels": sum(len(each.names) for each in gemms),
        "saved_ns": saved_ns,
    }
    template = (
        "fp32 GEMMs take {gemm_ns} ({gemm_pct} of kernel time after warm-up) and do not use the "
        "tensor cores"
    )
    if most.kind and most.speedup:
        template += f"; {_KIND_NAMES[most.kind]} is up to {{speedup_factor}} faster"
        values["speedup_factor"] = most.speedup
    if most.flop_per_s and most.fp32_flop_per_s:
        values["peak_flop_per_s"] = most.flop_per_s
        values["fp32_peak_flop_per_s"] = most.fp32_flop_per_s
    yield Finding(
        severity,
        f"{template}.{gain_sentence(saved_ns, less_ns)}",
        used.bf16 if most.kind == "bf16" else used.tf32,
        saved_ns,
        Subject("kernel", most.names[0]),
        Evidence(values, "kernels", {"name": most.names[0]}),
        share_pct(saved_ns, span_ns) if saved_ns else None,
    )


def unaligned_findings(trace: Trace) -> Iterator[Finding]:
    """One finding on the unaligned GEMMs of the GPU that spends most time in them."""
    of = max(unaligned_gemms(trace), key=lambda each: each.total_ns, default=None)
    span_ns = steady_spans_ns(trace).get(of.device, 0) if of else 0
    severity = severity_of_part(of.saved_ns, of.gain_ns, span_ns) if of else None
    if of is None or severity is None:
        return
    values: dict[str, Value] = {
        "gemms": of.calls,
        "total_ns": of.total_ns,
        "saved_ns": of.saved_ns,
        "kernels": len(of.names),
        "elements": of.elements,
        "dimension": of.dimension,
    }
    template = "{gemms:GEMM} run on slow kernels for unaligned matrices ({kernels:kernel}) for "
    template += "{total_ns}: "
    template += (
        "a dimension of {dimension} is not a multiple of {elements}."
        if of.dimension
        else "a dimension is not a multiple of {elements}."
    )
    template += gain_sentence(of.saved_ns, of.gain_ns)
    remedy = (
        "Make it a multiple of {elements}, by padding: it is most often the vocabulary, the "
        "number of classes or, where attention is not fused, the length of a sequence."
    )
    yield Finding(
        severity,
        template,
        remedy,
        of.saved_ns,
        Subject("kernel", of.names[0]),
        Evidence(values, "kernels", {"name": of.names[0]}, *of.longest),
        share_pct(of.saved_ns, span_ns) if of.saved_ns else None,
    )
