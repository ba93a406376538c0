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

import numpy as np

from traceview import groups
from traceview.analyses.gpu_wording import gain_sentence, severity_of_part
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_ns, gain_of_device_ns
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.kernel_owners import CUFFT
from traceview.facts.steps.warm_up import steady_kernels
from traceview.facts.work.peaks import Peaks, peaks
from traceview.findings import Evidence, Finding, Subject, share_pct
from traceview.records import record
from traceview.tables import Integers, Mask, Texts
from traceview.trace import Trace
from traceview.units import Value
from traceview.vocabulary.libraries import is_fp32_gemm_on_cuda_cores

_LONGEST = 4000
_CONVERSION = re.compile(r"\b(?:nchwTo(?:Folded)?Nhwc|(?:folded)?[nN]hwcToNchw)Kernel\b")
_FFT = re.compile(CUFFT)
_NCHW = re.compile(r"\bbn_\w*1C11|conv_depthwise2d_|2d_c1_k1_nchw_|[dw]grad2d_\w*(?:tiling|direct)")
_TF32 = re.compile(r"tf32")
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


@record
class _Remedy:
    """Message and remedy for a kind of kernels; `less` is the fraction of their time it saves.

    With a `factor`, by which these kernels become faster, fp32 kernels between them take half of
    their time. Without one the saving is a lower bound, as other kernels gain too.
    """

    message: str
    remedy: str
    less: float
    factor: float | None = None


_LAYOUT = _Remedy(
    "cuDNN's conversions of images between NCHW and NHWC take {total_ns} ({total_pct} of kernel "
    "time after warm-up) in {kernels:kernel}.",
    "Keep them as NHWC: .to(memory_format=torch.channels_last) of the model and of its input, or "
    "torch.channels_last_3d for videos and volumes.",
    1.0,
)
_OTHERS_ON_NCHW = (
    " Normalization and depthwise convolutions on NCHW take another {nchw_ns}; most are faster on "
    "NHWC."
)
_IN_TF32 = (
    "Convolutions in TF32 take {total_ns} ({total_pct} of kernel time after warm-up); bf16 is up "
    "to {speedup_factor} faster."
)
_HALVED = (
    " Other 32-bit kernels between them, such as normalization, take {halved_ns}, and half of that "
    "at best in 16 bits."
)
_USE_BF16 = "Run the forward pass under torch.autocast to bf16, where its accuracy is enough."
_IN_FP32 = (
    "Convolutions in fp32 take {total_ns} ({total_pct} of kernel time after warm-up) and do not "
    "use the tensor cores; fp16 is up to {speedup_factor} faster."
)
_USE_FP16 = (
    "Run the forward pass under torch.autocast to fp16, with torch.amp.GradScaler: the tensor "
    "cores of this GPU take nothing wider."
)


def convolution_findings(trace: Trace) -> Iterator[Finding]:
    """Findings on convolutions that 16 bits or another layout make faster, in PyTorch only.

    torch.fft needs images as NCHW: beside it another layout costs more conversions than it saves.
    A Fourier neural operator took 13.9 ms per step with channels_last and 11.1 without
    (docs/accuracy.md).
    """
    if framework(trace) != "torch":
        return
    kernels = trace.recorded("kernels")
    names, steady = kernels.texts("name"), steady_kernels(trace)
    convolves = steady & (kernel_classes(trace) == KernelClass.CONVOLUTION)
    precise = {tf32: convolves & _precise(names, tf32) for tf32 in (False, True)}
    conversions = steady & _named(names, lambda name: bool(_CONVERSION.search(name)))
    transforms = _named(names, lambda name: bool(_FFT.search(name))).any()
    for device, known in enumerate(peaks(trace)):
        takes_tf32 = "capability" in known and known["capability"].value >= _FIRST_TF32
        remedy = _precision(known)
        if remedy is not None:
            yield from _finding(trace, device, remedy, precise[takes_tf32])
        if takes_tf32 and not transforms:
            yield from _finding(trace, device, _LAYOUT, conversions)


def _precision(known: Peaks) -> _Remedy | None:
    """The 16-bit type that is faster on a GPU, by its peak rates; None where they are unknown."""
    rates = {kind: known[kind].value for kind in ("fp32", "fp16", "tf32", "bf16") if kind in known}
    capability = known["capability"].value if "capability" in known else 0.0
    if capability >= _FIRST_TF32 and {"tf32", "bf16"} <= rates.keys():
        factor = rates["bf16"] / rates["tf32"]
        return _Remedy(_IN_TF32, _USE_BF16, 1 - 1 / factor, factor) if factor > 1 else None
    if _FIRST_TENSOR_CORES <= capability < _FIRST_TF32 and {"fp32", "fp16"} <= rates.keys():
        factor = rates["fp16"] / rates["fp32"]
        return _Remedy(_IN_FP32, _USE_FP16, 1 - 1 / factor, factor) if factor > 1 else None
    return None


def _precise(names: Texts, takes_tf32: bool) -> Mask:
    """True for kernels that multiply TF32 or, before tensor cores took that, fp32."""
    if takes_tf32:
        return _named(names, lambda name: bool(_TF32.search(name)))
    return _named(names, lambda name: bool(_FP32.search(name)) and not _TENSOR_CORES.search(name))


def _named(names: Texts, chosen: Callable[[str], bool]) -> Mask:
    """True for the kernels whose names are chosen; each distinct name is tested once."""
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    codes = [code for code in used if chosen(str(names.values[code])[:_LONGEST])]
    result: Mask = np.isin(names.codes, codes)
    return result


def _finding(trace: Trace, device: int, say: _Remedy, chosen: Mask) -> Iterator[Finding]:
    """The finding on what the chosen kernels of a GPU can save, if that is enough."""
    rows, span_ns = np.flatnonzero(chosen), steady_spans_ns(trace).get(device, 0)
    kernels = trace.recorded("kernels")
    rows = rows[kernels["device"][rows] == device]
    if not len(rows):
        return
    every = steady_kernels(trace) & (kernels["device"] == device)
    duration_ns = kernels.duration_ns
    total_ns, kernel_ns = int(duration_ns[rows].sum()), int(duration_ns[every].sum())
    least = _LEAST_FRACTION if say.factor else 0.0
    if not total_ns or total_ns < least * kernel_ns:
        return
    others = np.flatnonzero(_between(trace) & every & ~chosen) if say.factor else rows[:0]
    gaining = np.concatenate([rows, others])
    part = np.repeat([say.less, _HALF], [len(rows), len(others)])
    less_ns: Integers = np.ceil(duration_ns[gaining] * part).astype(np.int64)
    saved_ns = claimable_ns(trace, device, gaining, less_ns)
    lost_ns = gain_of_device_ns(trace, gaining, less_ns)
    severity = severity_of_part(saved_ns, lost_ns, span_ns)
    if severity is None:
        return
    nchw_ns = 0 if say.factor else int(duration_ns[every & _on_nchw(kernels.texts("name"))].sum())
    besides = nchw_ns >= _MUCH * kernel_ns
    if besides and severity in ("low", "info"):
        severity = "medium"
    name = str(kernels.texts("name")[rows[np.argmax(duration_ns[rows])]])
    values: dict[str, Value] = {
        "kernels": len(rows),
        "total_ns": total_ns,
        "total_pct": 100 * total_ns / kernel_ns,
        "speedup_factor": say.factor,
        "halved_ns": int(duration_ns[others].sum()),
        "saved_ns": saved_ns,
        "nchw_ns": nchw_ns,
    }
    limited = gain_sentence(saved_ns, lost_ns)
    yield Finding(
        severity,
        say.message
        + (_HALVED if len(others) else "")
        + (_OTHERS_ON_NCHW if besides else "")
        + limited,
        say.remedy,
        saved_ns,
        Subject("kernel", name),
        Evidence(values, "kernels", {"name": name}),
        share_pct(saved_ns, span_ns) if saved_ns else None,
        # channels_last saved 14.7 ms where the conversions take 5.3, and 20.4 where they take 0.8
        # (docs/accuracy.md).
        saving="at-most" if say.factor or limited else "at-least",
    )


def _on_nchw(names: Texts) -> Mask:
    """True for kernels of cuDNN and PyTorch that normalize or convolve images in NCHW."""
    return _named(names, lambda name: bool(_NCHW.search(name)))


def _between(trace: Trace) -> Mask:
    """True for kernels of PyTorch and cuDNN on fp32 images that become 16 bits under autocast.

    GEMMs on CUDA cores have a finding of their own.
    """
    names = trace.recorded("kernels").texts("name")
    return _named(names, _is_wide) & np.isin(kernel_classes(trace), _BETWEEN)


def _is_wide(name: str) -> bool:
    wide = bool(_WIDE.search(name)) and not _NARROW.search(name)
    return wide and not is_fp32_gemm_on_cuda_cores(name)
