"""Library kernels for which the library has a faster alternative.

Libraries choose kernels of an older architecture for small or odd shapes as well, and rightly so.
Two cases are certain: FlashAttention-2, whose kernels are those of compute capability 8.0, on one
of 9.x, for which FlashAttention-3 and cuDNN have others; and 16-bit GEMMs of which none in the
whole recording is the GPU's own, as with a CUDA version older than the GPU. The third case is no
older architecture: singular values by Jacobi rotations, which PyTorch asks cuSOLVER for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.analyses.gpu_wording import gain_sentence, severity_of_part
from traceview.analyses.kernel_share.unaligned_gemms import aligned_elements
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_ns, gain_of_device_ns
from traceview.facts.operations.frameworks import framework
from traceview.facts.steps.warm_up import steady_kernels, steady_kernels_ns
from traceview.facts.work.peaks import Peaks, peaks
from traceview.findings import Evidence, Finding, Subject, share_pct
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace
from traceview.units import Value

_LONGEST = 4000
_FLASH_2 = re.compile(r"\b(?:pytorch_)?flash::flash_(?:fwd_kernel|bwd_dq_dk_dv_loop_\w+)\b")
_OLD_GEMM = re.compile(
    r"\b(?:volta|turing|ampere)_\w*gemm|\bsm[78]\d_xmma_gemm_|\bcutlass_[78]\d_tensorop_\w*gemm"
)
_SIXTEEN_BIT = re.compile(r"(?:bf16|[fh]p?16|s16816)")
_NEWER = re.compile(r"nvjet|\bsm(?:9|1\d)\d_|cutlass3x_sm(?:9|1\d)\d")
_ROTATION = re.compile(r"\bgesvdb?j_|\bsvd_(?:column|row)_rotate_")
# Shorter kernels are bound by their launch and their tail.
_SHORTEST_NS = 20_000
_HOPPER, _BLACKWELL = 9.0, 10.0


@record
class SlowerKernels:
    """One case, on GPUs of compute capability from `capabilities[0]` to below `capabilities[1]`.

    `speedup` is the greatest of the faster kernels; calls under `shortest_ns` do not count.
    """

    what: str
    faster: str
    remedy: str
    speedup: float
    capabilities: tuple[float, float] = (0.0, np.inf)
    shortest_ns: int = 0


# FlashAttention-3 (Shah et al., 2024): 1.5 to 2.0 times as fast as 2 forward on an H100. cuDNN on
# an H200: 1.3 to 1.9 times forward, 1.5 to 2.02 times backward (docs/accuracy.md).
_ATTENTION = SlowerKernels(
    "FlashAttention-2 kernels, built for compute capability 8.0,",
    "FlashAttention-3 and cuDNN have kernels for this GPU, up to {speedup_factor} faster.",
    "Use FlashAttention-3 (flash_attn_interface), or cuDNN's attention: "
    "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION) around the call.",
    2.1,
    (_HOPPER, _BLACKWELL),
    _SHORTEST_NS,
)
# Without wgmma, Hopper's tensor cores reach some 60 % of their peak.
_GEMM = SlowerKernels(
    "16-bit GEMM kernels built for an older architecture",
    "The recording has none built for this GPU, and those are up to {speedup_factor} faster.",
    "Update CUDA's libraries, or the framework to a build for this GPU: cuBLAS 12 has kernels for "
    "it.",
    1.6,
    (_HOPPER, np.inf),
    _SHORTEST_NS,
)
# On an H200 3.2 to 8.3 times as fast for 6 matrices of 1,024 and 16 of 256 rows (docs/accuracy.md).
_JACOBI = SlowerKernels(
    "Singular values by Jacobi rotations (cuSOLVER's gesvdj)",
    "Its gesvda is up to {speedup_factor} faster.",
    "Pass driver='gesvda' to torch.linalg.svd or svdvals if small singular values need not be "
    "exact. Use torch.svd_lowrank for a few values, and a Newton-Schulz iteration for the nearest "
    "orthogonal matrix: both are faster still.",
    8.3,
)


def slower_kernel_findings(trace: Trace) -> Iterator[Finding]:
    """One finding per case on the GPU that spends most time in such kernels."""
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    texts = {code: str(names.values[code])[:_LONGEST] for code in used}
    flash = [code for code, text in texts.items() if _FLASH_2.search(text)]
    gemms = [code for code, text in texts.items() if _is_old_gemm(text)]
    if any(_NEWER.search(text) for text in texts.values()):
        gemms = []
    rotations = [code for code, text in texts.items() if _ROTATION.search(text)]
    if framework(trace) != "torch":
        rotations = []
    for case, codes in ((_ATTENTION, flash), (_GEMM, gemms), (_JACOBI, rotations)):
        if codes:
            long = steady_kernels(trace) & (kernels.duration_ns >= case.shortest_ns)
            yield from _finding(trace, case, np.flatnonzero(np.isin(names.codes, codes) & long))


def _is_old_gemm(name: str) -> bool:
    old = _OLD_GEMM.search(name) and _SIXTEEN_BIT.search(name)
    return bool(old) and aligned_elements(name) is None


def _finding(trace: Trace, case: SlowerKernels, rows: Integers) -> Iterator[Finding]:
    kernels = trace.recorded("kernels")
    fits = [device for device, known in enumerate(peaks(trace)) if _capability_fits(known, case)]
    rows = rows[np.isin(kernels["device"][rows], fits)]
    if not len(rows):
        return
    by_device = groups.group(kernels["device"][rows])
    most = int(np.argmax(groups.sums(by_device, kernels.duration_ns[rows])))
    own = rows[by_device.ids == most]
    device, duration_ns = int(kernels["device"][own[0]]), kernels.duration_ns[own]
    less_ns = np.ceil(duration_ns * (1 - 1 / case.speedup)).astype(np.int64)
    saved_ns, span_ns = claimable_ns(trace, device, own, less_ns), steady_spans_ns(trace)[device]
    lost_ns = gain_of_device_ns(trace, own, less_ns)
    severity = severity_of_part(saved_ns, lost_ns, span_ns)
    if severity is None:
        return
    longest = own[np.argmax(duration_ns)]
    name = str(kernels.texts("name")[longest])
    values: dict[str, Value] = {
        "kernels": len(own),
        "total_ns": int(duration_ns.sum()),
        "total_pct": 100 * int(duration_ns.sum()) / steady_kernels_ns(trace, device),
        "speedup_factor": case.speedup,
        "saved_ns": saved_ns,
    }
    yield Finding(
        severity,
        f"{case.what} take {{total_ns}} ({{total_pct}} of kernel time after warm-up) in "
        f"{{kernels:call}}. {case.faster}" + gain_sentence(saved_ns, lost_ns),
        case.remedy,
        saved_ns,
        Subject("kernel", name),
        Evidence(values, "kernels", {"name": name}),
        share_pct(saved_ns, span_ns) if saved_ns else None,
    )


def _capability_fits(known: Peaks, case: SlowerKernels) -> bool:
    least, below = case.capabilities
    return "capability" in known and least <= known["capability"].value < below
