"""Findings that hold for a guessed tile alone, as recompiling with other tiles shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceview.base.findings import SEVERITIES, Finding
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.kernels.inspect.rules.remedies import Advice, Reconciliation

# Of an elementwise tile, 256 to 4,096 elements are usual; of a side of a product, 32 to 128.
_FACTOR, _FACTOR_OF_PRODUCTS = 4, 2
_LEAST_SIDE = 16


def of_guessed_tiles(
    kernel: KernelContext, advice: Sequence[Advice], settling: Reconciliation | None
) -> list[Advice]:
    """The findings; those that are less severe with a smaller or a larger tile are low, and say so.

    Where there is no time to compile other tiles, each is one step less severe.
    """
    assumed = kernel.compiled.assumed_sides
    sides = {a.name: a.value for a in kernel.compiled.arguments if a.name in assumed}
    sizes = {name: value for name, value in sides.items() if type(value) is int}
    if not sizes or all(each.finding.severity == "info" for each in advice):
        return list(advice)
    tried = [each for each in _other_sizes(kernel, sizes) if settling and settling.fits(each)]
    return [
        replace(each, finding=_finding(each, sizes, tried, settling))
        if each.finding.severity != "info"
        else each
        for each in advice
    ]


def _other_sizes(kernel: KernelContext, sizes: dict[str, int]) -> Iterator[Change]:
    """Larger and smaller tiles, of which each side is changed alike."""
    factor = _FACTOR_OF_PRODUCTS if tensor_ops_of(kernel.code) else _FACTOR
    for others in (
        {name: size * factor for name, size in sizes.items()},
        {name: max(_LEAST_SIDE, size // factor) for name, size in sizes.items()},
    ):
        yield Change(constexprs=tuple(others.items()), resizes=True)


def _finding(
    advice: Advice, sizes: dict[str, int], tried: Sequence[Change], settling: Reconciliation | None
) -> Finding:
    finding, now = advice.finding, Change(constexprs=tuple(sizes.items())).description
    eased = {each: settling.eased(each, advice) for each in tried} if settling else {}
    for change, severity in eased.items():
        if severity:
            but = "but not" if severity == "info" else "and less so"
            template = f"{finding.template}, with {now} (guessed), {but} with {change.description}"
            return replace(finding, template=template, severity="low")
    if tried:
        return finding
    lower = SEVERITIES[min(SEVERITIES.index(finding.severity), SEVERITIES.index("low") - 1) + 1]
    return replace(finding, template=f"{finding.template}, with {now} (guessed)", severity=lower)
