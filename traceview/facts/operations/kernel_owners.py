"""Who wrote each kernel: the program, a compiler or a library, decided by its name.

A program chooses the blocks of its own kernels. Those of a compiler or a library change only with
the shapes, types and options of the operation that launches them. The patterns were read off
recordings: tests/facts/operations/test_kernel_owners.py lists real names.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.trace import Trace, fact_without_ranges


class KernelOwner(IntEnum):
    """Who wrote a kernel. Triton and CUDA kernels written by the user belong to the program."""

    PROGRAM = 0
    COMPILER = 1
    LIBRARY = 2


_COMPILER = re.compile(
    r"^triton_\w+_fused|^(?:wrapped|loop|input)_\w*(?:fusion|\w)$|^(?:\w+_)?fusion(?:_\d+)?$"
    r"|^xla_|\bxla::|gemm_fusion_dot"
)
CUFFT = r"\b(?:regular|vector|composite|multi)_(?:\w+_)?fft(?:_\w+)?<"
_LIBRARY = re.compile(
    r"\bat(_cuda_detail)?::|\bc10::|cub::|thrust::|cutlass|cudnn|cublas|xmma_|^nvjet|^cupy_|flash"
    r"|fmha|[sdhc]gemm|gemv|gemmSN|gemmk1|splitKreduce|^nccl|cufft|cusparse|vision::|torch::"
    # A pointer to a generator's state is an argument of the program's own kernels.
    r"|curand(?!State\w* ?\*)"
    # Of TensorRT-LLM, by types and tile.
    r"|^bmm_\w+_t\d+x\d+x\d+"
    r"|<unnamed>::|\(anonymous namespace\)|elementwise_kernel|CUDAKernel|[dw]grad_|^_norm_ord"
    # Of cuSOLVER and cuSPARSE, most of them in no namespace: named after LAPACK's routines.
    r"|\b(?:[sdcz]|glu_|kernel::|batch(?:ed)?_)?(?:geqr[f\d]|getr[fsi]|getf\d|gesvd|geb(?:rd|d2|al|ak)"
    r"|gehd\d|gelange|po(?:tr[fsi]|tf\d)|sy(?:tr[df]|t[df]\d|ev)|lacgv|lacpy|laed\d|lansy|lar(?:f_|f[bgt]|tg)"
    r"|labrd|latrd|lascl|laswp|or[gm](?:q[rl]|tr|lq|br)|ste(?:dc|qr)|bdsqr)\w*"
    r"|cusolver|lapack_|\bglu_(?:csr|tile_|ilu0_|lu_)|csr(?:[iI]lu0|qr|chol|sv)\w*_|\bcuds_|\bx+trf\d_"
    r"|(?:svd|batch)_parallel_jacobi|\bbatched_svd_|(?:row|column)_rotate_batch|\bpegasus_?[A-Zadlgns]"
    r"|\b(?:batch_)?(?:FnrmA|OneNormA|offA)_|\bbatch_(?:tr[sm][mv]_|eye_)|\b(?:batch_)?colperm_kernel"
    r"|\bcopy_info_kernel\b|\bconvert_(?:CsrToCoo|CooToCsr)_kernel"
    r"|^feistel_|\bgetrf_\w*params_|\bkernel_trsm_|\btrsv_\w+_exec|" + CUFFT
)
_LONGEST = 4000


def owner_of(name: str) -> KernelOwner:
    """The owner of the kernel of that name, demangled or not."""
    if _COMPILER.search(name[:_LONGEST]):
        return KernelOwner.COMPILER
    return KernelOwner.LIBRARY if _LIBRARY.search(name[:_LONGEST]) else KernelOwner.PROGRAM


@fact_without_ranges
def kernel_owners(trace: Trace) -> npt.NDArray[np.uint8]:
    """The owner of each row of kernels, a `KernelOwner`; each distinct name is classified once."""
    names = trace.recorded("kernels").texts("name")
    by_code = np.full(len(names.values) + 1, KernelOwner.LIBRARY, np.uint8)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        by_code[code] = owner_of(str(names.values[code]))
    result: npt.NDArray[np.uint8] = by_code[names.codes]
    return result
