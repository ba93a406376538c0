"""GEMMs on kernels for unaligned matrices: a dimension is not a multiple of what 16 bytes hold.

Tensor cores are fed by 128-bit loads where each row of a matrix starts at a multiple of 16 bytes.
Otherwise cuBLAS takes a CUTLASS kernel with narrower loads, whose name ends in align1, align2 or
align4: on an H200 the GEMMs of a vocabulary of 50,257 took four times as long as those of 50,304.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.findings import Subject
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import costliest_gpu, kernel_claim, named, steady
from traceview.tables import Integers, RowNumbers
from traceview.trace import Trace

# simt kernels, for CUDA cores, are always align1: that is not a fault.
_CUTLASS = re.compile(
    r"cutlass_\d+_(?:wmma_)?tensorop_(?:(?P<before>bf16|f16)_)?[a-z]\d+gemm(?:_grouped)?"
    r"_(?:(?P<after>bf16|f16|f32|tf32)_)?\d+x\d+\w*?_align(?P<elements>\d+)\b"
)
_ALIGNED = {"bf16": 8, "f16": 8}
_ALIGNED_TF32 = 4


def aligned_elements(name: str) -> int | None:
    """Elements that a row must be a multiple of, for a GEMM kernel that is unaligned; else None."""
    match = _CUTLASS.search(name[:4000])
    if not match:
        return None
    needed = _ALIGNED.get(match["before"] or match["after"] or "", _ALIGNED_TF32)
    return needed if int(match["elements"]) < needed else None


def _unaligned(trace: Trace) -> Iterator[TimeClaim]:
    kernels, names = trace.recorded("kernels"), trace.recorded("kernels").texts("name")
    for device, rows in costliest_gpu(trace, steady(trace, named(trace, aligned_elements))):
        duration_ns, by_name = kernels.duration_ns[rows], groups.group(names.codes[rows])
        most = int(np.argmax(groups.sums(by_name, duration_ns)))
        name, longest = str(names[rows[by_name.first[most]]]), rows[np.argmax(duration_ns)]
        elements = aligned_elements(name) or 0
        values = {
            "gemms": len(rows),
            "kernels": by_name.size,
            "elements": elements,
            "dimension": _odd_dimension(trace, rows, duration_ns, elements),
        }
        yield replace(
            kernel_claim(trace, device, rows, values),
            subject=Subject("kernel", name),
            row={"name": name},
            window=(int(kernels["start_ns"][longest]), int(kernels["end_ns"][longest])),
        )


def _odd_dimension(
    trace: Trace, rows: RowNumbers, duration_ns: Integers, elements: int
) -> int | None:
    """The unaligned dimension in which these GEMMs spend most time, by their recorded shapes."""
    shaped = shaped_gemms(trace)
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


UNALIGNED = FindingRule(
    _unaligned,
    "{gemms:GEMM} run on slow kernels for unaligned matrices ({kernels:kernel}) for {total_ns}: a "
    "dimension[ of {dimension}] is not a multiple of {elements}.",
    "Make it a multiple of {elements}, by padding: it is most often the vocabulary, the number of "
    "classes or, where attention is not fused, the length of a sequence.",
)
