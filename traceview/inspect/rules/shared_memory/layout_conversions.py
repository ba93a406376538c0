"""Layout conversions that take a tensor through shared memory in every iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir.layout_conversions import LayoutConversion

# Less is one instruction per thread of four warps.
_LEAST_BYTES = 2048
_REMEDY = (
    "Move the conversion out of the loop, or let both sides use the tensor along the same axis, so "
    "that they have one layout"
)


def layout_conversions_in_loops(kernel: KernelContext) -> Iterator[Finding]:
    """Conversions in the hottest loop, except operands of MMA, which need shared memory."""
    costly = [each for each in in_hottest_loop(kernel) if not each.feeds_mma]
    total = sum(each.size_bytes for each in costly)
    if total < _LEAST_BYTES:
        return
    largest = max(costly, key=lambda each: each.size_bytes)
    lines = list(dict.fromkeys(each.source for each in costly))
    places, values = lines_in_message(lines)
    values |= {"size_bytes": total, "conversions": len(costly)}
    yield Finding(
        "low",
        "{conversions:layout conversion} in the hottest loop, at " + places + ", {verb} "
        "{size_bytes} per iteration and block through shared memory",
        _REMEDY,
        subject=subject_of(largest.source, kernel.compiled),
        evidence=Evidence(
            values | {"verb": "moves" if len(costly) == 1 else "move"}, basis=_basis(costly)
        ),
    )


def in_hottest_loop(kernel: KernelContext) -> list[LayoutConversion]:
    """The conversions through shared memory in the hottest loop."""
    lines = _hot_lines(kernel)
    return [
        each
        for each in kernel.layout_conversions
        if each.path == "shared memory" and each.in_deepest_loop and each.source in lines
    ]


def _hot_lines(kernel: KernelContext) -> set[SourceLine | None]:
    mix = kernel.mix
    return {line.source for line in mix.lines if line.in_hottest_loop} if mix else set()


def _basis(conversions: Sequence[LayoutConversion]) -> str:
    pairs = dict.fromkeys(f"{each.from_layout} → {each.to_layout}" for each in conversions)
    return f"TTGIR: {', '.join(pairs)}"
