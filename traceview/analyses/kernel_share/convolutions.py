"""Convolutions that would be faster in 16 bits, and the layout conversions around them.

cuDNN's tensor-core kernels take images as NHWC: of a model in PyTorch's default layout, NCHW, it
converts images before and after each convolution. Its fp32 convolutions run in TF32 on the tensor
cores from compute capability 8.0 on, and before that on CUDA cores.

Under autocast what is between the convolutions is in 16 bits as well, so those kernels move half
the bytes: at best they take half their time. What another layout gains beyond the conversions is
not known beforehand: most kernels that work on channels are faster on NHWC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.kernel_classes import CUFFT, KernelClass, kernel_classes
from traceview.facts.work.peaks import peaks
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import (
    Names,
    by_gpu,
    capability,
    kernel_claim,
    named,
    steady,
    steady_ns,
)
from traceview.rules.sentences import Clause
from traceview.tables import Integers, Mask
from traceview.trace import Trace
from traceview.vocabulary.libraries import is_fp32_gemm_on_cuda_cores

_CONVERSION = r"\b(?:nchwTo(?:Folded)?Nhwc|(?:folded)?[nN]hwcToNchw)Kernel\b"
# Kernels of cuDNN and PyTorch that normalize or convolve images in NCHW.
_NCHW = r"\bbn_\w*1C11|conv_depthwise2d_|2d_c1_k1_nchw_|[dw]grad2d_\w*(?:tiling|direct)"
_FP32 = re.compile(r"_scudnn_|<float, ")
_TENSOR_CORES = re.compile(r"884|tensor_?op|half|fp16|f16")
_WIDE, _NARROW = re.compile(r"\bfloat\b|f32"), re.compile(r"(?i)half|bf16|bfloat|fp16|\bdouble\b")
# Convolutions of 1 × 1 are GEMMs.
_BETWEEN = (
    KernelClass.CONVOLUTION,
    KernelClass.GEMM,
    KernelClass.NORMALIZATION,
    KernelClass.ELEMENTWISE,
    KernelClass.CAST_COPY,
)
_HALF = 0.5
_LEAST_FRACTION = 0.1
# Where other kernels on NCHW take this fraction, conversions are the lesser part of the cost.
_MUCH = 0.25
_FIRST_TENSOR_CORES, _FIRST_TF32 = 7.0, 8.0


def _is_fp32(name: str) -> bool:
    """Whether a kernel convolves fp32 off the tensor cores."""
    return bool(_FP32.search(name)) and not _TENSOR_CORES.search(name)


def _narrower(
    names: Names, since: float, until: float, wide: str, narrow: str
) -> Callable[[Trace], Iterator[TimeClaim]]:
    """Claims on convolutions of a type, on GPUs of these capabilities, which know a faster one.

    fp32 kernels between them take half of their time at best.
    """

    def claims(trace: Trace) -> Iterator[TimeClaim]:
        convolves = kernel_classes(trace) == KernelClass.CONVOLUTION
        if framework(trace) != "torch" or not convolves.any():
            return
        chosen = convolves & named(trace, names)
        duration_ns = trace.recorded("kernels").duration_ns
        for device, rows in by_gpu(trace, steady(trace, chosen)).items():
            known, total_ns = peaks(trace)[device], int(duration_ns[rows].sum())
            fits = since <= capability(trace, device) < until and {wide, narrow} <= known.keys()
            factor = known[narrow].value / known[wide].value if fits else 1.0
            least_ns = _LEAST_FRACTION * int(steady_ns(trace)[device])
            if factor <= 1 or not total_ns or total_ns < least_ns:
                continue
            others = steady(trace, _between(trace) & ~chosen)
            others = by_gpu(trace, others).get(device, others[:0])
            gaining = np.concatenate([rows, others])
            part = np.repeat([1 - 1 / factor, _HALF], [len(rows), len(others)])
            less_ns: Integers = np.ceil(duration_ns[gaining] * part).astype(np.int64)
            values = {
                "kernels": len(rows),
                "speedup_factor": factor,
                "halved_ns": int(duration_ns[others].sum()),
            }
            claim = kernel_claim(trace, device, rows, values, less_ns, gaining)
            yield replace(claim, values={**claim.values, "nchw_ns": 0})

    return claims


def _between(trace: Trace) -> Mask:
    """True for kernels of PyTorch and cuDNN on fp32 images that become 16 bits under autocast.

    GEMMs on CUDA cores have a finding of their own.
    """
    return named(trace, _is_wide) & np.isin(kernel_classes(trace), _BETWEEN)


def _is_wide(name: str) -> bool:
    wide = bool(_WIDE.search(name)) and not _NARROW.search(name)
    return wide and not is_fp32_gemm_on_cuda_cores(name)


def _conversions(trace: Trace) -> Iterator[TimeClaim]:
    """Conversions of images, on GPUs whose tensor cores take TF32.

    torch.fft needs images as NCHW: beside it another layout costs more conversions than it saves.
    A Fourier neural operator took 13.9 ms per step with channels_last and 11.1 without
    (docs/accuracy.md).
    """
    rows = steady(trace, named(trace, _CONVERSION))
    if not len(rows) or framework(trace) != "torch" or named(trace, CUFFT).any():
        return
    duration_ns = trace.recorded("kernels").duration_ns
    on_nchw = by_gpu(trace, steady(trace, named(trace, _NCHW)))
    for device, own in by_gpu(trace, rows).items():
        if capability(trace, device) < _FIRST_TF32 or not duration_ns[own].any():
            continue
        kernel_ns = int(steady_ns(trace)[device])
        nchw_ns = int(duration_ns[on_nchw.get(device, own[:0])].sum())
        claim = kernel_claim(trace, device, own, {"speedup_factor": None, "halved_ns": 0})
        yield replace(
            claim,
            values={**claim.values, "nchw_ns": nchw_ns},
            figures={**claim.figures, "kernel_ns": kernel_ns},
            at_least="medium" if nchw_ns >= _MUCH * kernel_ns else "info",
        )


_HALVED = Clause(
    " Other 32-bit kernels between them, such as normalization, take {halved_ns}, and half of that "
    "at best in 16 bits."
)
IN_TF32 = FindingRule(
    _narrower(r"tf32", _FIRST_TF32, np.inf, "tf32", "bf16"),
    "Convolutions in TF32 take {total_ns} ({total_pct} of kernel time after warm-up); bf16 is up "
    "to {speedup_factor} faster.",
    "Run the forward pass under torch.autocast to bf16, where its accuracy is enough.",
    (_HALVED,),
)
IN_FP32 = FindingRule(
    _narrower(_is_fp32, _FIRST_TENSOR_CORES, _FIRST_TF32, "fp32", "fp16"),
    "Convolutions in fp32 take {total_ns} ({total_pct} of kernel time after warm-up) and do not "
    "use the tensor cores; fp16 is up to {speedup_factor} faster.",
    "Run the forward pass under torch.autocast to fp16, with torch.amp.GradScaler: the tensor "
    "cores of this GPU take nothing wider.",
    (_HALVED,),
)
# What another layout gains beyond the conversions is not known: channels_last saved 14.7 ms where
# the conversions take 5.3, and 20.4 where they take 0.8 (docs/accuracy.md).
LAYOUT = FindingRule(
    _conversions,
    "cuDNN's conversions of images between NCHW and NHWC take {total_ns} ({total_pct} of kernel "
    "time after warm-up) in {kernels:kernel}.",
    "Keep them as NHWC: .to(memory_format=torch.channels_last) of the model and of its input, or "
    "torch.channels_last_3d for videos and volumes.",
    (
        Clause(
            " Normalization and depthwise convolutions on NCHW take another {nchw_ns}; most are "
            "faster on NHWC.",
            least=_MUCH,
            of_ns="kernel_ns",
        ),
    ),
    saving="at-least",
)
CONVOLUTIONS = (IN_TF32, IN_FP32, LAYOUT)
