"""Matrix products and convolutions on slow kernels: unaligned, in fp32, in a converted layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

import numpy as np

from traceview.base import groups, hardware
from traceview.base.findings import Clause, Subject
from traceview.base.records import record
from traceview.base.tables import Integers, RowNumbers, Texts
from traceview.base.units import Value
from traceview.base.vocabulary import frameworks, libraries
from traceview.traces import rules
from traceview.traces.analyses.wording import on_amd
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.kernel_classes import (
    CUFFT,
    KernelClass,
    framework,
    kernel_classes,
    kernel_labels,
    terms,
)
from traceview.traces.facts.savings import Gain, faster
from traceview.traces.facts.work import from_ranges, kernel_work
from traceview.traces.facts.work.peaks import Floats, Peaks, peaks
from traceview.traces.trace import Trace, fact

# GEMMs on slow kernels: for unaligned matrices, and fp32 on CUDA cores.
#
# Tensor cores are fed by 128-bit loads where each row of a matrix starts at a multiple of 16
# bytes. Otherwise cuBLAS takes a CUTLASS kernel with narrower loads, whose name ends in align1,
# align2 or align4: on an H200 the GEMMs of a vocabulary of 50,257 took four times as long as
# those of 50,304.

_ALIGNED_FACTORS = {4: 2.8}
_ALIGNED_FACTOR = 6.0
"""How much faster GEMMs are once aligned: of 22.7 ms on such kernels of 16 bits, GPT-2 saved 19.1
when its vocabulary became 50,304; in fp32 (TF32), by the elements of 16 bytes, a vocabulary of
5,001 took 2.8 times as long as one of 5,120 (docs/accuracy.md)."""


def _unaligned(trace: Trace) -> Iterator[rules.TimeClaim]:
    kernels, names = trace.recorded("kernels"), trace.recorded("kernels").texts("name")
    for device, rows in rules.costliest_gpu(
        trace, rules.steady(trace, rules.named(trace, libraries.aligned_elements))
    ):
        duration_ns, by_name = kernels.duration_ns[rows], groups.group(names.codes[rows])
        most = int(np.argmax(groups.sums(by_name, duration_ns)))
        name, longest = str(names[rows[by_name.first[most]]]), rows[np.argmax(duration_ns)]
        elements = libraries.aligned_elements(name) or 0
        factor = _ALIGNED_FACTORS.get(elements, _ALIGNED_FACTOR)
        less_ns: Integers = np.round(duration_ns * (1 - 1 / factor)).astype(np.int64)
        values = {
            "gemms": len(rows),
            "kernels": by_name.size,
            "elements": elements,
            "dimension": _odd_dimension(trace, rows, duration_ns, elements),
        }
        claim = rules.kernel_claim(trace, device, rows, values, faster(less_ns))
        yield replace(
            claim,
            subject=replace(claim.subject, name=name),
            row={"name": name},
            window=(int(kernels["start_ns"][longest]), int(kernels["end_ns"][longest])),
        )


def _odd_dimension(
    trace: Trace, rows: RowNumbers, duration_ns: Integers, elements: int
) -> int | None:
    """The unaligned dimension in which these GEMMs spend most time, by their recorded shapes."""
    shaped = from_ranges.shaped_gemms(trace)
    if shaped is None:
        return None
    gemm_of = np.full(len(trace.recorded("kernels")), -1)
    gemm_of[shaped.rows] = shaped.of
    known = gemm_of[rows] >= 0
    time = np.bincount(gemm_of[rows][known], duration_ns[known], len(shaped.gemms))
    spent: dict[int, float] = {}
    for at in np.flatnonzero(time).tolist():
        gemm = shaped.gemms[at]
        for side in {gemm.m, gemm.n, gemm.k}:
            if side % elements:
                spent[side] = spent.get(side, 0.0) + float(time[at])
    return max(spent, key=lambda side: spent[side]) if spent else None


UNALIGNED = rules.FindingRule(
    _unaligned,
    "{gemms:GEMM} {gemms?takes|take} {total_ns} on slow kernels for unaligned matrices "
    "({kernels:kernel}): a dimension[ of {dimension}] is not a multiple of {elements}.",
    "Make it a multiple of {elements}, by padding: it is most often the vocabulary, the number of "
    "classes or, where attention is not fused, the length of a sequence.",
)


# The first tensor cores that take fp32 as it is, as TF32; the first that know bf16, too.
_FIRST_CAPABILITY = 8.0
_LEAST_GEMM_FRACTION = 0.10


@record
class GemmLaunches:
    """Launches of fp32 GEMMs on one GPU; one entry per launch, NaN where its FLOP are unknown."""

    names: Texts
    labels: Texts
    duration_ns: Integers
    flop: Floats


@record
class Fp32Gemms:
    """The fp32 GEMMs of one GPU, and what its tensor cores could save.

    `names` are the kernels, the costliest first, and `label` is the short form of the first.
    `kind` is the type that the tensor cores would multiply instead, tf32 or else bf16, `speedup`
    how much faster at their peak. `saved_ns` is an upper bound: `time_ns` less the time of the FLOP
    at that peak. The three are None where the GPU's rates are unknown; `fp32_flop_per_s` and
    `flop_per_s`, the peak rates of the CUDA cores and of that type, also where only their ratio is
    known. `saved_each_ns` is `saved_ns` per launch; `gain` is what the program gains of it.
    """

    device: int
    names: tuple[str, ...]
    label: str
    time_ns: int
    kind: str | None = None
    speedup: float | None = None
    fp32_flop_per_s: float | None = None
    flop_per_s: float | None = None
    saved_ns: int | None = None
    saved_each_ns: Integers | None = field(default=None, compare=False, repr=False)
    gain: Gain | None = field(default=None, compare=False, repr=False)


@fact
def fp32_gemms(trace: Trace) -> tuple[Fp32Gemms, ...]:
    """The selected fp32 GEMMs after warm-up, by GPU; see `estimate` for which GPUs are left out."""
    kernels, rows = trace.recorded("kernels"), _on_cuda_cores(trace)
    names = kernels.texts("name")
    if not len(rows):
        return ()
    labels, flop = kernel_labels(trace), kernel_work.kernel_work(trace).estimate.flop
    duration_ns = kernels.duration_ns
    gpus = list(trace.devices.rows())
    estimates = []
    for device, own in rules.by_gpu(trace, rows).items():
        launches = GemmLaunches(names.take(own), labels.take(own), duration_ns[own], flop[own])
        gpu = str(gpus[device]["name"] or ""), str(gpus[device]["compute_capability"])
        gemms = estimate(device, launches, peaks(trace)[device], hardware.rtx_factors(*gpu))
        if gemms and gemms.saved_each_ns is not None:
            gain = rules.of_kernels(trace, own, faster(gemms.saved_each_ns))
            gemms = replace(gemms, gain=gain.at_most(gemms.saved_ns or 0))
        estimates.append(gemms)
    return tuple(each for each in estimates if each)


def _on_cuda_cores(trace: Trace) -> RowNumbers:
    return rules.steady(trace, rules.named(trace, libraries.is_fp32_gemm_on_cuda_cores))


def estimate(
    device: int, launches: GemmLaunches, known: Peaks, factors: Mapping[str, float]
) -> Fp32Gemms | None:
    """An estimate of the time that tensor cores save on these launches.

    `factors` are the rates of tensor cores ÷ the fp32 rate, used where that is unknown.

    None on a GPU whose tensor cores do not take fp32 (before compute capability 8.0, or of unknown
    capability), and on one where they are not faster than its CUDA cores.
    """
    if "capability" not in known or known["capability"].value < _FIRST_CAPABILITY:
        return None
    kernels = groups.group(launches.labels.codes)
    costliest_first = groups.most_first(groups.sums(kernels, launches.duration_ns))
    first = kernels.first[costliest_first].tolist()
    names = tuple(str(launches.names[row]) for row in first)
    total_ns = int(launches.duration_ns.sum())
    gemms = Fp32Gemms(device, names, str(launches.labels[first[0]]), total_ns)
    rates = {kind: known[kind].value for kind in ("fp32", "tf32", "bf16") if kind in known}
    flop, is_known = launches.flop, "fp32" in rates
    if not is_known:
        rates, flop = {"fp32": 1.0, **factors}, np.full(len(flop), np.nan)
    fp32 = rates.pop("fp32")
    if not rates:
        return gemms
    kinds = [kind for kind in ("tf32", "bf16") if rates.get(kind, 0.0) > fp32]
    if not kinds:
        return None
    rate = rates[kinds[0]]
    # Launches of unknown FLOP can have done no more than the CUDA cores do in their time.
    flop = np.fmin(flop, launches.duration_ns / 1e9 * fp32)
    return replace(
        gemms,
        kind=kinds[0],
        speedup=rate / fp32,
        fp32_flop_per_s=fp32 if is_known else None,
        flop_per_s=rate if is_known else None,
        saved_ns=total_ns - int(flop.sum() / rate * 1e9),
        saved_each_ns=np.ceil(launches.duration_ns - flop / rate * 1e9).astype(np.int64),
    )


def fp32_claim(
    gemms: tuple[Fp32Gemms, ...], kernel_ns: int, span_ns: int, used: frameworks.Framework
) -> Iterator[rules.TimeClaim]:
    """One claim on the fp32 GEMMs of all GPUs, where they take a tenth of the kernel time.

    `kernel_ns` is the time of all kernels after warm-up, `span_ns` the steady time of the GPUs.
    """
    gemm_ns = sum(each.time_ns for each in gemms)
    if not gemm_ns or gemm_ns < _LEAST_GEMM_FRACTION * kernel_ns:
        return
    # GPUs that compute at the same time save the time of the program once.
    gain = max((each.gain or Gain(0, 0) for each in gemms), key=lambda one: one.saved_ns)
    most = max(gemms, key=lambda each: each.time_ns)
    values: dict[str, Value] = {
        "gemm_ns": gemm_ns,
        "gemm_pct": 100 * gemm_ns / kernel_ns,
        "kernels": sum(len(each.names) for each in gemms),
        "saved_ns": gain.saved_ns,
    }
    if most.kind and most.speedup:
        values["speedup_factor"] = most.speedup
    if most.flop_per_s and most.fp32_flop_per_s:
        values["peak_flop_per_s"] = most.flop_per_s
        values["fp32_peak_flop_per_s"] = most.fp32_flop_per_s
    yield rules.TimeClaim(
        Subject("kernel", most.names[0]),
        values,
        "kernels",
        {"name": most.names[0]},
        **rules.gained(gain),
        span_ns=span_ns,
        words={"kind": "bf16" if most.kind == "bf16" else "TF32"},
        remedy=used.bf16 if most.kind == "bf16" else used.tf32,
        severity=None if any(each.kind for each in gemms) else "info",
    )


def _fp32(trace: Trace) -> Iterator[rules.TimeClaim]:
    kernel_ns = int(rules.steady_ns(trace).sum())
    claims = fp32_claim(fp32_gemms(trace), kernel_ns, steady_span_ns(trace), terms(trace))
    for claim in claims:
        limits = rules.gpu_limits(claim.saved_ns, claim.lost_ns or 0)
        yield rules.with_line(trace, claim, _on_cuda_cores(trace), limits)


FP32_GEMMS = rules.FindingRule(
    _fp32,
    "fp32 GEMMs take {gemm_ns} ({gemm_pct} of kernel time after warm-up) and do not use the tensor "
    "cores[; {kind} is up to {speedup_factor} faster].",
)


# Convolutions that would be faster in 16 bits, and the layout conversions around them.
#
# cuDNN's tensor-core kernels take images as NHWC: of a model in PyTorch's default layout, NCHW,
# it converts images before and after each convolution. Its fp32 convolutions run in TF32 on the
# tensor cores from compute capability 8.0 on, and before that on CUDA cores.
#
# Under autocast what is between the convolutions is in 16 bits as well, so those kernels move
# half the bytes: at best they take half their time. What another layout gains beyond the
# conversions is not known beforehand: most kernels that work on channels are faster on NHWC.

_CONVERSION = r"\b(?:nchwTo(?:Folded)?Nhwc|(?:folded)?[nN]hwcToNchw)Kernel\b"
_CONVERSION_OF_MIOPEN = r"^batched_transpose_\d+x\d+_"
# Kernels of cuDNN and PyTorch that normalize or convolve images in NCHW.
_NCHW = r"\bbn_\w*1C11|conv_depthwise2d_|2d_c1_k1_nchw_|[dw]grad2d_\w*(?:tiling|direct)"
_NCHW_ONLY = rf"{CUFFT}|\bCompute(?:Backward)?FusedParamsCUDAKernel\b"
_FP32 = re.compile(r"_scudnn_|_gcgemm_|<float[,>]")
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
    names: rules.Names, since: float, until: float, wide: str, narrow: str
) -> Callable[[Trace], Iterator[rules.TimeClaim]]:
    """Claims on convolutions of a type, on GPUs of these capabilities, which know a faster one.

    fp32 kernels between them take half of their time at best. The sum of what is best for both is a
    bound: autocast also casts, and saved 23.3 of 36.5 ms of one network, 11.7 of 21.2 of another
    (docs/accuracy.md).
    """

    def claims(trace: Trace) -> Iterator[rules.TimeClaim]:
        convolves = kernel_classes(trace) == KernelClass.CONVOLUTION
        if framework(trace) != "torch" or not convolves.any():
            return
        chosen = convolves & rules.named(trace, names)
        duration_ns = trace.recorded("kernels").duration_ns
        for device, rows in rules.by_gpu(trace, rules.steady(trace, chosen)).items():
            rates, total_ns = _relative_rates(trace, device), int(duration_ns[rows].sum())
            fits = (
                since <= rules.capability(trace, device) < until and {wide, narrow} <= rates.keys()
            )
            factor = rates[narrow] / rates[wide] if fits else 1.0
            least_ns = _LEAST_FRACTION * int(rules.steady_ns(trace)[device])
            if factor <= 1 or not total_ns or total_ns < least_ns:
                continue
            # Others on fp32 images become 16 bits under autocast, too.
            between = np.isin(kernel_classes(trace), _BETWEEN) & rules.named(trace, _is_wide)
            others = rules.steady(trace, between & ~chosen)
            others = rules.by_gpu(trace, others).get(device, others[:0])
            gaining = np.concatenate([rows, others])
            part = np.repeat([1 - 1 / factor, _HALF], [len(rows), len(others)])
            less_ns: Integers = np.ceil(duration_ns[gaining] * part).astype(np.int64)
            values = {
                "kernels": len(rows),
                "speedup_factor": factor,
                "halved_ns": int(duration_ns[others].sum()),
            }
            claim = rules.kernel_claim(trace, device, rows, values, faster(less_ns), gaining)
            scaled = {"scaler": "torch.amp.GradScaler"} if rules.trains(trace) else {}
            known = {**claim.values, "nchw_ns": 0}
            yield replace(claim, values=known, words=scaled, saving="at-most")

    return claims


def _relative_rates(trace: Trace, device: int) -> dict[str, float]:
    """The peak rates of a GPU, or, where they are unknown, how they relate to that of fp32."""
    known = peaks(trace)[device]
    if "fp32" in known:
        return {kind: rate.value for kind, rate in known.items()}
    row = list(trace.devices.rows())[device]
    factors = hardware.rtx_factors(str(row["name"] or ""), str(row["compute_capability"]))
    return {"fp32": 1.0, **factors}


def _is_wide(name: str) -> bool:
    wide = bool(_WIDE.search(name)) and not _NARROW.search(name)
    return wide and not libraries.is_fp32_gemm_on_cuda_cores(name)


def _conversions(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Conversions of images, on GPUs whose tensor cores take TF32.

    torch.fft and group normalization need images as NCHW: beside them another layout costs more
    conversions than it saves. With channels_last a Fourier neural operator took 13.9 ms per step
    instead of 11.1, a network with GroupNorm 16.1 instead of 11.4 (docs/accuracy.md).
    """
    amd = on_amd(trace)
    rows = rules.steady(trace, rules.named(trace, _CONVERSION_OF_MIOPEN if amd else _CONVERSION))
    if not len(rows) or framework(trace) != "torch" or rules.named(trace, _NCHW_ONLY).any():
        return
    duration_ns = trace.recorded("kernels").duration_ns
    on_nchw = rules.by_gpu(trace, rules.steady(trace, rules.named(trace, _NCHW)))
    for device, own in rules.by_gpu(trace, rows).items():
        if (not amd and rules.capability(trace, device) < _FIRST_TF32) or not duration_ns[
            own
        ].any():
            continue
        kernel_ns = int(rules.steady_ns(trace)[device])
        nchw_ns = int(duration_ns[on_nchw.get(device, own[:0])].sum())
        claim = rules.kernel_claim(trace, device, own, {"speedup_factor": None, "halved_ns": 0})
        yield replace(
            claim,
            values={**claim.values, "nchw_ns": nchw_ns},
            figures={**claim.figures, "kernel_ns": kernel_ns},
            words={**claim.words, "library": "MIOpen" if amd else "cuDNN"},
            remedy=_AS_NHWC + _FOR_MIOPEN if amd else "",
            at_least="medium" if nchw_ns >= _MUCH * kernel_ns else "info",
        )


_AS_NHWC = (
    "Keep them as NHWC: .to(memory_format=torch.channels_last) of the model and of its input, or "
    "torch.channels_last_3d for videos and volumes"
)
_FOR_MIOPEN = ", and set PYTORCH_MIOPEN_SUGGEST_NHWC=1, without which PyTorch asks MIOpen for NCHW."
_HALVED = Clause(
    " Other 32-bit kernels between them, such as normalization, take {halved_ns}, and half of that "
    "at best in 16 bits."
)
IN_TF32 = rules.FindingRule(
    _narrower(r"tf32|tfloat32_t", _FIRST_TF32, np.inf, "tf32", "bf16"),
    "Convolutions in TF32 take {total_ns} ({total_pct} of kernel time after warm-up); bf16 is up "
    "to {speedup_factor} faster.",
    "Run the forward pass under torch.autocast to bf16, where its accuracy is enough.",
    (_HALVED,),
)
IN_FP32 = rules.FindingRule(
    _narrower(_is_fp32, _FIRST_TENSOR_CORES, _FIRST_TF32, "fp32", "fp16"),
    "Convolutions in fp32 take {total_ns} ({total_pct} of kernel time after warm-up) and do not "
    "use the tensor cores; fp16 is up to {speedup_factor} faster.",
    "Run the forward pass under torch.autocast to fp16[, with {scaler}]: the tensor cores of this "
    "GPU take nothing wider.",
    (_HALVED,),
)
# What another layout gains beyond the conversions is not known: channels_last saved 14.7 ms where
# the conversions take 5.3, and 20.4 where they take 0.8 (docs/accuracy.md).
LAYOUT = rules.FindingRule(
    _conversions,
    "{library}'s conversions of images between NCHW and NHWC take {total_ns} ({total_pct} of "
    "kernel time after warm-up) in {kernels:kernel}.",
    _AS_NHWC + ".",
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
