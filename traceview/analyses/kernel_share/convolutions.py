"""Convolutions that would be faster in 16 bits, and the layout conversions around them.

cuDNN's tensor-core kernels take images as NHWC: of a model in PyTorch's default layout, NCHW, it
converts images before and after each convolution. Its fp32 convolutions run in TF32 on the tensor
cores from compute capability 8.0 on, and before that on CUDA cores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.analyses.gpu_wording import gain_sentence, severity_of_part
from traceview.analyses.kernel_share.fp32_gemms import steady_kernels
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_ns
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.work.peaks import Peaks, peaks
from traceview.findings import Evidence, Finding, Subject, share_pct
from traceview.tables import Integers, Mask, Texts
from traceview.trace import Trace
from traceview.units import Value

_LONGEST = 4000
_CONVERSION = re.compile(r"\b(?:nchwTo(?:Folded)?Nhwc|(?:folded)?[nN]hwcToNchw)Kernel\b")
_TF32 = re.compile(r"tf32")
_FP32 = re.compile(r"_scudnn_|<float, ")
_TENSOR_CORES = re.compile(r"884|tensor_?op|half|fp16|f16")
_LEAST_FRACTION = 0.1
_FIRST_TENSOR_CORES, _FIRST_TF32 = 7.0, 8.0


@dataclass(frozen=True)
class _Remedy:
    """What is said of some kernels, and what takes their place; `less` is the part that goes."""

    message: str
    remedy: str
    less: float
    factor: float | None = None


_LAYOUT = _Remedy(
    "cuDNN's conversions of images between NCHW and NHWC take {total_ns} ({total_pct} of kernel "
    "time after warm-up) in {kernels:kernel}.",
    "Keep them as NHWC: .to(memory_format=torch.channels_last) of the model and of its input.",
    1.0,
)
_IN_TF32 = (
    "Convolutions in TF32 take {total_ns} ({total_pct} of kernel time after warm-up); bf16 is up "
    "to {speedup_factor} faster, and other kernels then move half the bytes."
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
    """What 16 bits and another layout save of the convolutions of each kind, in PyTorch alone."""
    if framework(trace) != "torch":
        return
    kernels = trace.recorded("kernels")
    names, steady = kernels.texts("name"), steady_kernels(trace)
    convolves = steady & (kernel_classes(trace) == KernelClass.CONVOLUTION)
    for device, known in enumerate(peaks(trace)):
        own = kernels["device"] == device
        remedy = _precision(known)
        if remedy is not None:
            yield from _finding(trace, device, remedy, own & convolves & _precise(names, known))
        if known.get("capability") and known["capability"].value >= _FIRST_TF32:
            chosen = own & steady & _named(names, lambda name: bool(_CONVERSION.search(name)))
            yield from _finding(trace, device, _LAYOUT, chosen)


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


def _precise(names: Texts, known: Peaks) -> Mask:
    """True for kernels that multiply TF32 or, before tensor cores took that, fp32."""
    if known["capability"].value >= _FIRST_TF32:
        return _named(names, lambda name: bool(_TF32.search(name)))
    return _named(names, lambda name: bool(_FP32.search(name)) and not _TENSOR_CORES.search(name))


def _named(names: Texts, chosen: Callable[[str], bool]) -> Mask:
    """True for the kernels whose names are chosen; each distinct name is asked once."""
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    codes = [code for code in used if chosen(str(names.values[code])[:_LONGEST])]
    result: Mask = np.isin(names.codes, codes)
    return result


def _finding(trace: Trace, device: int, say: _Remedy, chosen: Mask) -> Iterator[Finding]:
    rows, span_ns = np.flatnonzero(chosen), steady_spans_ns(trace).get(device, 0)
    kernels = trace.recorded("kernels")
    every = steady_kernels(trace) & (kernels["device"] == device)
    duration_ns: Integers = kernels.duration_ns[rows]
    total_ns, kernel_ns = int(duration_ns.sum()), int(kernels.duration_ns[every].sum())
    least = _LEAST_FRACTION if say.factor else 0.0
    if not len(rows) or total_ns < least * kernel_ns:
        return
    less_ns = np.ceil(duration_ns * say.less).astype(np.int64)
    saved_ns = claimable_ns(trace, device, rows, less_ns)
    severity = severity_of_part(saved_ns, int(less_ns.sum()), span_ns)
    if severity is None:
        return
    name = str(kernels.texts("name")[rows[np.argmax(duration_ns)]])
    values: dict[str, Value] = {
        "kernels": len(rows),
        "total_ns": total_ns,
        "total_pct": 100 * total_ns / kernel_ns,
        "speedup_factor": say.factor,
        "saved_ns": saved_ns,
    }
    yield Finding(
        severity,
        say.message + gain_sentence(saved_ns, int(less_ns.sum())),
        say.remedy,
        saved_ns,
        Subject("kernel", name),
        Evidence(values, "kernels", {"name": name}),
        share_pct(saved_ns, span_ns) if saved_ns else None,
        # Other kernels gain as well, or lose: channels_last alone saved 14.7 ms where 6.5 were
        # said, bf16 alone 23.3 where 13 were (docs/accuracy.md).
        saving="about",
    )
