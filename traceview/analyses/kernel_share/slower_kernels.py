"""Library kernels for which the library has a faster alternative.

Libraries choose kernels of an older architecture for small or odd shapes as well, and rightly so.
16-bit GEMMs are a certain case where none in the whole recording is the GPU's own, as with a CUDA
version older than the GPU. Singular values by Jacobi rotations, which PyTorch asks cuSOLVER for,
are no older architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceview.analyses.kernel_share.unaligned_gemms import aligned_elements
from traceview.facts.operations.frameworks import framework
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import faster, named
from traceview.trace import Trace

# Shorter kernels are bound by their launch and their tail.
_SHORTEST_NS = 20_000
_HOPPER = 9.0
_OLD_GEMM = re.compile(
    r"\b(?:volta|turing|ampere)_\w*gemm|\bsm[78]\d_xmma_gemm_|\bcutlass_[78]\d_tensorop_\w*gemm"
)
_SIXTEEN_BIT = re.compile(r"(?:bf16|[fh]p?16|s16816)")
_NEWER = r"nvjet|\bsm(?:9|1\d)\d_|cutlass3x_sm(?:9|1\d)\d"


def _is_old_gemm(name: str) -> bool:
    old = _OLD_GEMM.search(name) and _SIXTEEN_BIT.search(name)
    return bool(old) and aligned_elements(name) is None


def _old_gemms(trace: Trace) -> Iterable[TimeClaim]:
    # Without wgmma, Hopper's tensor cores reach some 60 % of their peak.
    old = faster(_is_old_gemm, 1.6, since=_HOPPER, least_ns=_SHORTEST_NS)
    return () if named(trace, _NEWER).any() else old(trace)


def _rotations(trace: Trace) -> Iterable[TimeClaim]:
    # On an H200 3.2 to 8.3 times as fast for 6 matrices of 1,024 and 16 of 256 rows
    # (docs/accuracy.md).
    rotations = faster(r"\bgesvdb?j_|\bsvd_(?:column|row)_rotate_", 8.3)
    return rotations(trace) if framework(trace) == "torch" else ()


OLD_GEMMS = FindingRule(
    _old_gemms,
    "16-bit GEMM kernels built for an older architecture take {total_ns} ({total_pct} of kernel "
    "time after warm-up) in {kernels:call}. The recording has none built for this GPU, and those "
    "are up to {speedup_factor} faster.",
    "Update CUDA's libraries, or the framework to a build for this GPU: cuBLAS 12 has kernels for "
    "it.",
)
JACOBI_ROTATIONS = FindingRule(
    _rotations,
    "Singular values by Jacobi rotations (cuSOLVER's gesvdj) take {total_ns} ({total_pct} of "
    "kernel time after warm-up) in {kernels:call}. Its gesvda is up to {speedup_factor} faster.",
    "Pass driver='gesvda' to torch.linalg.svd or svdvals if small singular values need not be "
    "exact. Use torch.svd_lowrank for a few values, and a Newton-Schulz iteration for the nearest "
    "orthogonal matrix: both are faster still.",
)
