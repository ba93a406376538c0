"""Findings of kernel-share: fp32 and unaligned GEMMs, unfused kernels, the costliest own kernel.

Shorter kernels shorten a step only where the GPU is what limits it. Where it is idle for most of
the time, these findings are for information.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.analyses.gpu_wording import gpu_subject, severity_of_part
from traceview.analyses.kernel_share.fp32_gemms import Fp32Gemms, steady_kernels
from traceview.analyses.kernel_share.fusion import Runs, unfused_kernels, unfused_optimizer
from traceview.analyses.kernel_share.unaligned_gemms import unaligned_gemms
from traceview.facts.idle.gaps import device_work, steady_spans_ns
from traceview.facts.operations.frameworks import Framework, framework
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.tables import Integers, Mask, Texts
from traceview.trace import Trace
from traceview.units import Value

_LEAST_GEMM_FRACTION = 0.10
_LONGEST_NAME = 4000
_TF32 = "Use TF32 where a 10-bit mantissa is accurate enough: "
_USE_TF32: dict[Framework, str] = {
    "torch": f"{_TF32}torch.set_float32_matmul_precision('high'). torch.autocast to bf16 is faster "
    "still.",
    "cupy": f"{_TF32}set CUPY_TF32=1.",
    "jax": f"{_TF32}jax.default_matmul_precision('tensorfloat32').",
    "": f"{_TF32}cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), or NVIDIA_TF32_OVERRIDE=1.",
}
_BF16 = "where a 7-bit mantissa is accurate enough."
_USE_BF16: dict[Framework, str] = {
    "torch": f"Use torch.autocast to bf16 {_BF16}",
    "cupy": f"Use bf16 inputs {_BF16}",
    "jax": f"Use jax.default_matmul_precision('bfloat16') {_BF16}",
    "": f"Use bf16 inputs {_BF16}",
}
_FUSE: dict[Framework, str] = {
    "torch": "Use torch.compile on the model, which fuses them. Where it is on already, look for "
    "graph breaks (TORCH_LOGS=graph_breaks).",
    "cupy": "Fuse them: cupy.fuse, or one cupy.ElementwiseKernel for the chain.",
    "jax": "Make them one jitted function: XLA fuses what it compiles together.",
    "": "Fuse them into one kernel per chain.",
}
# Below it, the CPU and not the GPU limits the steps.
_GPU_LIMITS_FRACTION = 0.5
_LIBRARY = re.compile(
    r"\bat(_cuda_detail)?::|\bc10::|cub::|thrust::|cutlass|cudnn|cublas|xmma_|^nvjet|^cupy_|flash"
    r"|fmha|[sdhc]gemm|gemv|gemmSN|gemmk1|splitKreduce|^triton_\w+_fused|^nccl|curand|cufft|cusparse"
    r"|vision::|torch::|<unnamed>::|\(anonymous namespace\)|elementwise_kernel|CUDAKernel"
)
_OWN_KERNEL_PCT = 10.0
_TINY_NS = 3_000
_MANY_TINY = 1_000
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
    unlimited_ns = max(each.saved_ns or 0 for each in gemms)
    saved_ns = max(_on_path_ns(each) for each in gemms)
    rates_known = any(each.kind for each in gemms)
    severity = severity_of_part(saved_ns, unlimited_ns, span_ns) if rates_known else "info"
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
        (_USE_BF16 if most.kind == "bf16" else _USE_TF32)[used],
        saved_ns,
        Subject("kernel", most.names[0]),
        Evidence(values, "kernels", {"name": most.names[0]}),
        share_pct(saved_ns, span_ns) if saved_ns else None,
    )


def _on_path_ns(gemms: Fp32Gemms) -> int:
    """What faster GEMMs of one GPU save of their time on the critical path."""
    saved_ns = gemms.saved_ns or 0
    return saved_ns if gemms.limited_ns is None else min(saved_ns, gemms.limited_ns)


def unaligned_findings(trace: Trace) -> Iterator[Finding]:
    """One finding on the unaligned GEMMs of the GPU that spends most time in them."""
    of = max(unaligned_gemms(trace), key=lambda each: each.total_ns, default=None)
    span_ns = steady_spans_ns(trace).get(of.device, 0) if of else 0
    severity = severity_of(of.total_ns, span_ns) if of else None
    if of is None or severity is None:
        return
    values: dict[str, Value] = {
        "gemms": of.calls,
        "total_ns": of.total_ns,
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
    remedy = (
        "Make it a multiple of {elements}, by padding: it is most often the vocabulary or the "
        "number of classes. At most {total_ns} can be saved."
    )
    yield Finding(
        severity,
        template,
        remedy,
        of.total_ns,
        Subject("kernel", of.names[0]),
        Evidence(values, "kernels", {"name": of.names[0]}, *of.longest),
        share_pct(of.total_ns, span_ns),
    )


def fusion_findings(trace: Trace) -> Iterator[Finding]:
    """Chains of eager kernels, and foreach optimizers, of the GPU that spends most time in them."""
    of = max(unfused_kernels(trace), key=lambda each: each.saved_ns, default=None)
    if of:
        yield from _runs_finding(
            trace,
            of,
            "{kernels:kernel} of elementwise operations, casts, normalizations and reductions run "
            "in {runs:chain} and take {total_ns}. Fused, a chain takes about as long as its "
            "longest kernel: {saved_ns} less.",
            _FUSE[framework(trace)],
        )
    of = max(unfused_optimizer(trace), key=lambda each: each.saved_ns, default=None)
    if of:
        yield from _runs_finding(
            trace,
            of,
            "The optimizer is not fused: {kernels:foreach kernel} in {runs:run} take {total_ns}. "
            "One kernel that reads and writes each tensor once saves up to {saved_ns}.",
            "Use fused=True (Adam, AdamW, SGD, Adagrad), or torch.compile on the optimizer's step.",
        )


def _runs_finding(trace: Trace, of: Runs, template: str, remedy: str) -> Iterator[Finding]:
    span_ns = steady_spans_ns(trace).get(of.device, 0)
    severity = severity_of(of.saved_ns, span_ns)
    if severity is None:
        return
    kind = max(of.class_ns, key=lambda each: of.class_ns[each])
    values: dict[str, Value] = {
        "kernels": of.kernels,
        "runs": of.runs,
        "total_ns": of.total_ns,
        "saved_ns": of.saved_ns,
    }
    yield Finding(
        severity,
        template,
        remedy,
        of.saved_ns,
        gpu_subject(trace, of.device),
        Evidence(
            values, "classes", {**gpu_cells(trace, of.device), "class": kind.label}, *of.longest
        ),
        share_pct(of.saved_ns, span_ns),
    )


def tiny_kernels(trace: Trace) -> Iterator[Finding]:
    """That most kernels take no longer than their launch: for information."""
    kernels = trace.recorded("kernels")
    steady = steady_kernels(trace)
    tiny = steady & (kernels.duration_ns <= _TINY_NS)
    device = kernels["device"][tiny]
    if not len(device):
        return
    by_device = groups.group(device)
    calls = groups.count(by_device)
    most = int(np.argmax(calls))
    worst = int(device[by_device.first[most]])
    on_device = steady & (kernels["device"] == worst)
    if calls[most] < max(_MANY_TINY, on_device.sum() // 2):
        return
    kinds = kernel_classes(trace)[tiny & on_device]
    kind = KernelClass(int(np.argmax(np.bincount(kinds))))
    values: dict[str, Value] = {
        "tiny_kernels": int(calls[most]),
        "kernels": int(on_device.sum()),
        "longest_ns": _TINY_NS,
        "total_ns": int(kernels.duration_ns[tiny & on_device].sum()),
    }
    whole = {
        "torch": "torch.compile(mode='reduce-overhead') or torch.cuda.CUDAGraph",
        "jax": "one jitted function for the whole step",
    }.get(framework(trace), "a CUDA graph")
    yield Finding(
        "info",
        "{tiny_kernels} of {kernels} kernels take {longest_ns} or less, {total_ns} in all: each "
        "takes about as long to launch as to run.",
        f"Use {whole}, larger batches, or fused kernels.",
        0,
        gpu_subject(trace, worst),
        Evidence(values, "classes", {**gpu_cells(trace, worst), "class": kind.label}),
    )


def limited_by_gpu(trace: Trace, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, for information where all GPUs are idle for most of the steady time."""
    spans, work = steady_spans_ns(trace), device_work(trace)
    busy = max((work[each].steady_ns / max(spans[each], 1) for each in spans), default=1.0)
    for each in findings:
        yield (
            each
            if busy >= _GPU_LIMITS_FRACTION
            else replace(
                each,
                severity="info",
                template=f"{each.template} The GPU is busy for only {{busy_pct}} of the time, so "
                "shorter kernels alone save little.",
                evidence=replace(
                    each.evidence, values={**each.evidence.values, "busy_pct": 100.0 * busy}
                ),
            )
        )


def costliest_own_kernel(
    names: Texts, labels: Texts, duration_ns: Integers, steady: Mask, span_ns: int
) -> Iterator[Finding]:
    """The kernel with most time after warm-up, if it is the program's own and not a library's.

    One entry per launch; `steady` is False for launches of warm-up, which count where nothing
    else was launched.
    """
    after_warm_up = bool(steady.any() and not steady.all())
    rows = np.flatnonzero(steady) if after_warm_up else np.arange(len(steady))
    kernels = groups.group(names.codes[rows])
    total_ns = groups.sums(kernels, duration_ns[rows])
    if not total_ns.any():
        return
    most = int(np.argmax(total_ns))
    first, largest_ns = int(rows[kernels.first[most]]), int(total_ns[most])
    pct = 100.0 * largest_ns / int(total_ns.sum())
    name = str(names[first])
    if pct < _OWN_KERNEL_PCT or _LIBRARY.search(name[:_LONGEST_NAME]):
        return
    template = "{kernel} takes {kernel_ns}, {kernel_pct} of kernel time"
    template += " after warm-up." if after_warm_up else "."
    yield Finding(
        "info",
        template,
        "Look at what limits it (roofline, wave-quantization, load-widths, traceview ptx). At most "
        "{kernel_ns} can be saved.",
        largest_ns,
        Subject("kernel", name),
        Evidence(
            {"kernel": labels[first], "kernel_ns": largest_ns, "kernel_pct": pct},
            "kernels",
            {"name": name},
        ),
        share_pct(largest_ns, span_ns),
    )
