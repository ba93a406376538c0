"""How many bytes and FLOP each kernel moved and did, from the best source that there is.

Sources in the order in which they are asked, for bytes and for FLOP each: what Nsight Compute
counted, sampled GPU metrics, what the program declares, shapes of tensors, counts in the code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.facts.work.estimate import Part
from traceview.facts.work.from_counters import counted
from traceview.facts.work.from_metrics import sampled
from traceview.facts.work.from_ranges import Passages, from_declared, from_shapes
from traceview.tables import Integers, constant
from traceview.trace import Trace, fact

SOURCES = ("counters (ncu)", "counters (GPU metrics)", "declared", "tensor shapes", "PTX")
PTX = SOURCES.index("PTX")
DECLARED = SOURCES.index("declared")
MEASURED = SOURCES.index("counters (GPU metrics)")
"""The last of those that measure; the others know what should be moved."""


@dataclass(frozen=True)
class KernelWork:
    """Work of each kernel, and the numbers of the SOURCES of bytes and of FLOP, −1 for none.

    `passages` are those of several kernels together; the kernels in them have no work of their own.
    """

    part: Part
    bytes_from: Integers
    flop_from: Integers
    passages: Passages | None

    @property
    def is_silent(self) -> bool:
        """Whether no source says anything of any kernel."""
        known = (self.bytes_from >= 0).any() or (self.flop_from >= 0).any()
        return not known and (self.passages is None or not self.passages.name)


@fact
def kernel_work(trace: Trace) -> KernelWork:
    """Ask every source. What a source does not need to be asked for costs nothing."""
    declared = from_declared(trace)
    parts = (
        counted(trace),
        sampled(trace),
        declared[0] if declared else None,
        from_shapes(trace),
        _from_code(trace),
    )
    total = len(trace.recorded("kernels"))
    passages = declared[1] if declared else None
    if all(part is None for part in parts):
        nobody = constant(-1, total, np.int64)
        return KernelWork(Part.silent(total), nobody, nobody, passages)
    work = KernelWork(Part.unknown(total), np.full(total, -1), np.full(total, -1), passages)
    for number, part in enumerate(parts):
        if part is not None:
            _add(work, part, number)
    return _without_parts(work)


def _from_code(trace: Trace) -> Part | None:
    if "kernel_code" not in trace.tables:
        return None
    # What reads code takes long to import, and most traces hold none.
    from traceview.facts.work.from_code import from_code

    return from_code(trace)


def _add(work: KernelWork, part: Part, number: int) -> None:
    """Fill in what no earlier source knew."""
    new = np.isnan(work.part.bytes) & ~np.isnan(part.bytes)
    work.part.bytes[new], work.bytes_from[new] = part.bytes[new], number
    new = np.isnan(work.part.flop) & ~np.isnan(part.flop)
    work.part.flop[new], work.flop_from[new] = part.flop[new], number
    work.part.kind[new] = part.kind[new]


def _without_parts(work: KernelWork) -> KernelWork:
    """A kernel counts by itself or in a passage, never in both: counters come first."""
    passages = work.passages
    if passages is None or not len(passages.name):
        return work
    by_itself = (work.bytes_from >= 0) & (work.bytes_from < DECLARED)
    by_itself |= (work.flop_from >= 0) & (work.flop_from < DECLARED)
    touched = np.zeros(len(passages.name), bool)
    touched[passages.of[by_itself & (passages.of >= 0)]] = True
    of = np.where((passages.of >= 0) & ~touched[passages.of], passages.of, -1)
    inside = of >= 0
    for values in (work.part.bytes, work.part.flop):
        values[inside] = np.nan
    work.bytes_from[inside] = work.flop_from[inside] = -1
    return KernelWork(
        work.part, work.bytes_from, work.flop_from, Passages(of, passages.name, passages.part)
    )
