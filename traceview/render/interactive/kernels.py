"""The `repr` of reports on kernels: figures and findings, not the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

from traceview.base import units
from traceview.base.findings import Finding
from traceview.kernels.inspect.comparison import Diff
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.target_report import PtxReport
from traceview.render.base.safe_text import shortened, visible
from traceview.render.interactive.text import paragraph
from traceview.render.kernels.summary import circumstances, figures, shown_name

Inspected = PtxReport | KernelReport | Diff

_WIDEST_NAME = 60
MOST_KERNELS, MOST_FINDINGS = 6, 4


@singledispatch
def kernel_text(value: Inspected) -> str:
    """The `repr` of a report on kernels: at most a screen of plain lines."""
    raise TypeError(f"{type(value).__name__} has no description")


@kernel_text.register
def _(value: KernelReport) -> str:
    lines = [f"<KernelReport of {_named(value, [value])}"]
    lines += [*paragraph("    ", circumstances(value)), *_figures(value)]
    lines += _findings(value.findings)
    return "\n".join(lines) + ">"


@kernel_text.register
def _(value: PtxReport) -> str:
    findings = units.counted(sum(len(each.findings) for each in value.kernels), "finding")
    counts = f"{units.counted(len(value.kernels), 'kernel')}, {findings}"
    lines = [f"<PtxReport of {shortened(visible(value.target), _WIDEST_NAME)}: {counts}"]
    for kernel in value.kernels[:MOST_KERNELS]:
        own = units.counted(len(kernel.findings), "finding")
        lines += [f"  {_named(kernel, value.kernels)}: {own}", *_figures(kernel)]
    lines += _more(len(value.kernels) - MOST_KERNELS, "kernel")
    lines += _findings([each for kernel in value.kernels for each in kernel.findings])
    return "\n".join(lines) + ">"


@kernel_text.register
def _(value: Diff) -> str:
    versions = " → ".join(visible(label) for label in value.labels)
    lines = paragraph("<Diff of ", versions, indent=2)
    for comparison in value.comparisons[:MOST_KERNELS]:
        findings = sum(any(each) for each in comparison.findings)
        name = shortened(visible(comparison.short_name), _WIDEST_NAME)
        lines.append(f"  {name}: {units.counted(findings, 'finding')} in any version")
    lines += _more(len(value.comparisons) - MOST_KERNELS, "kernel")
    if value.left_out:
        lines.append(f"  {units.counted(len(value.left_out), 'kernel')} without a counterpart")
    return "\n".join(lines) + ">"


def _named(kernel: KernelReport, among: Sequence[KernelReport]) -> str:
    arch = f" ({kernel.compiled.arch})" if kernel.compiled.arch else ""
    return f"{shortened(visible(shown_name(kernel, among)), _WIDEST_NAME)}{arch}"


def _figures(kernel: KernelReport) -> list[str]:
    return paragraph("    ", " · ".join(f"{name} {value}" for name, value in figures(kernel)))


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings[:MOST_FINDINGS]:
        yield from (f"  {finding.severity}", *paragraph("    ", finding.message))
    yield from _more(len(findings) - MOST_FINDINGS, "finding")


def _more(number: int, what: str) -> list[str]:
    return [f"  … and {units.counted(number, f'more {what}')}"] if number > 0 else []
