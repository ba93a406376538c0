"""GEMMs on kernels for unaligned matrices: a dimension is not a multiple of what 16 bytes hold.

Tensor cores are fed by 128-bit loads where each row of a matrix starts at a multiple of 16 bytes.
Otherwise cuBLAS takes a CUTLASS kernel with narrower loads, whose name ends in align1, align2 or
align4: on an H200 the GEMMs of a vocabulary of 50,257 took four times as long as those of 50,304.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.idle.gpu_limited import claimable_ns, gain_of_device_ns
from traceview.facts.steps.warm_up import steady_kernels
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.records import record
from traceview.tables import Integers
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


@record
class UnalignedGemms:
    """The unaligned GEMMs of one GPU after warm-up; `names`, costliest first.

    `saved_ns` is the part of their time that the program gains at most, `gain_ns` the gain if the
    CPU launched all work in time. `elements` is the number that dimensions should be a multiple
    of, `dimension` a recorded one that is not, None without shapes. `longest` has start and end of
    the longest launch, in ns.
    """

    device: int
    names: tuple[str, ...]
    calls: int
    total_ns: int
    saved_ns: int
    gain_ns: int
    elements: int
    dimension: int | None
    longest: tuple[int, int]


def unaligned_gemms(trace: Trace) -> tuple[UnalignedGemms, ...]:
    """The selected unaligned GEMMs after warm-up, by GPU."""
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    needed = {code: aligned_elements(str(names.values[code])) for code in used}
    codes = [code for code, elements in needed.items() if elements]
    if not codes:
        return ()
    rows = np.flatnonzero(np.isin(names.codes, codes) & steady_kernels(trace))
    devices = kernels["device"][rows]
    by_device = []
    for device in groups.different(devices).tolist():
        own = rows[devices == device]
        duration_ns = kernels.duration_ns[own]
        by_name = groups.group(names.codes[own])
        costliest = groups.most_first(groups.sums(by_name, duration_ns))
        first = own[by_name.first[costliest]]
        elements = needed[int(names.codes[first[0]])] or 0
        longest = own[np.argmax(duration_ns)]
        by_device.append(
            UnalignedGemms(
                device,
                tuple(str(names[row]) for row in first.tolist()),
                len(own),
                int(duration_ns.sum()),
                claimable_ns(trace, device, own),
                gain_of_device_ns(trace, own),
                elements,
                _odd_dimension(trace, own, duration_ns, elements),
                (int(kernels["start_ns"][longest]), int(kernels["end_ns"][longest])),
            )
        )
    return tuple(by_device)


def _odd_dimension(
    trace: Trace, rows: Integers, duration_ns: Integers, elements: int
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
