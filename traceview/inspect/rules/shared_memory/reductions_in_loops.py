"""Reductions across warps in loops that do not need them in each iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from traceview.findings import Evidence, Finding, Severity
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.ptx.ttgir.reductions import Purpose, WarpReduction, warp_reductions

_REMEDIES: dict[Purpose, str] = {
    "pick": (
        "Load the one value in the loop with a scalar tl.load(pointer + index), without tl.where "
        "and tl.sum: it is in the cache"
    ),
    "accumulation": (
        "Accumulate the whole block element by element in the loop, and reduce it once after the "
        "loop"
    ),
}


def reductions_in_loops(kernel: KernelContext) -> Iterator[Finding]:
    """Blocks reduced to pick one element, or to accumulate, in each iteration."""
    by_purpose: dict[Purpose, list[WarpReduction]] = defaultdict(list)
    for reduction in warp_reductions(kernel.ttgir) if kernel.ttgir else ():
        by_purpose[reduction.purpose].append(reduction)
    for purpose, remedy in _REMEDIES.items():
        if by_purpose[purpose]:
            yield _finding(kernel, by_purpose[purpose], remedy)


def _finding(kernel: KernelContext, same: Sequence[WarpReduction], remedy: str) -> Finding:
    lines = list(dict.fromkeys(reduction.source for reduction in same))
    places, values = lines_in_message(lines)
    picks = same[0].purpose == "pick"
    one = len(same) == 1
    where = "the innermost loop" if one else "innermost loops"
    verb = (
        f"{'picks' if one else 'pick'} one element of a block"
        if picks
        else f"only {'adds' if one else 'add'} to what the loop accumulates"
    )
    barriers = _barriers(kernel, {line for line in lines if line})
    severity: Severity = "medium" if picks or any(each.is_scalar for each in same) else "low"
    return Finding(
        severity,
        f"{{reductions:reduction}} in {where}, at {places}, {verb}, but "
        f"{'combines' if one else 'combine'} all warps through shared memory in each iteration"
        + (" ({barriers:barrier})" if barriers else ""),
        remedy,
        subject=subject_of(lines[0], kernel.compiled),
        evidence=Evidence(
            values | {"reductions": len(same), "barriers": barriers, "proven": True},
            basis="TTGIR: the reduced axis is spread over several warps",
        ),
    )


def _barriers(kernel: KernelContext, lines: set[object]) -> int:
    """The barriers of the PTX in loops at these lines."""
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    return sum(i.opcode.startswith("bar") and i.loop_depth > 0 and i.source in lines for i in code)
