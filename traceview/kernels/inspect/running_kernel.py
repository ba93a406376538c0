"""What the code of one kernel that ran shows against it, beside what its launches tell."""

from __future__ import annotations

from traceview.base.errors import TraceviewError
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.kernels.inspect import kernel_report
from traceview.kernels.inspect.kernel_context import ARITHMETIC, KernelContext
from traceview.kernels.inspect.rules import (
    RULES,
    global_memory,
    launches,
    occupancy,
    of_causes,
    ranked,
)
from traceview.kernels.inspect.rules.engine import advice_by
from traceview.kernels.inspect.rules.vector_width.narrow_accesses import narrow_global_accesses
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.model import Compiled, SourceLine
from traceview.kernels.toolchain import listings

_OF_THE_RUN = {
    rule.__name__
    for rule in (
        *(launches.masked_blocks, launches.partial_warps, launches.small_blocks),
        occupancy.small_launch,
        *(occupancy.low_occupancy, occupancy.tail_wave, narrow_global_accesses),
        *(global_memory.narrow_sass_accesses, global_memory.split_vectors),
    )
}
"""Rules on what wave-quantization, kernel-share and load-widths say of the run."""
_LIMITS = 1.5
"""Of the cycles that its bytes take at the memory's rate: what arithmetic takes where it limits a
loop. The rates are those of an H100, the caches are not counted."""


@record
class Arithmetic:
    """A loop that its arithmetic limits: instructions of the busiest pipe, and of all."""

    pipe: str
    instructions: int
    of: int
    source: SourceLine | None


def shown_by_code(
    compiled: Compiled, sm_count: int | None = None
) -> tuple[Finding | None, Arithmetic | None]:
    """The worst finding on a kernel above `low`, and whether arithmetic limits its hottest loop.

    Findings that its launches tell are left out. Code that cannot be read shows nothing.
    """
    try:
        code = listings.code_of(compiled, ptxas=False)
        both = [accesses(function) for function in (code.ptx, code.sass) if function]
        kernel = KernelContext(
            compiled,
            code,
            tuple(access for level in both for access in level),
            kernel_report.occupancy_of(compiled, code)[0],
            kernel_report.sm_count_of(compiled, sm_count) if compiled.grid else None,
        )
        advice = [each for rule in RULES for each in advice_by(rule, kernel)]
        left = [each for each in of_causes(advice) if each.rule not in _OF_THE_RUN]
        worst = next(iter(ranked(each.finding for each in left)), None)
        sure = worst if worst and worst.severity in ("high", "medium") else None
        return sure, _arithmetic(kernel)
    except TraceviewError:
        return None, None


def _arithmetic(kernel: KernelContext) -> Arithmetic | None:
    loop, cycles = kernel.mix.hottest_loop if kernel.mix else None, kernel.pass_cycles
    if loop is None or not cycles:
        return None
    pipe = max(ARITHMETIC, key=cycles.__getitem__)
    counts = loop.counts
    own = counts.by_class.get(pipe, 0)
    if cycles[pipe] < _LIMITS * cycles["memory"] or 2 * own < counts.total:
        return None
    return Arithmetic(pipe, own, counts.total, loop.source)
