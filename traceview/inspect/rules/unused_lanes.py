"""Vector loads of which ptxas keeps only a part, as the rest is never read."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import line_name, subject_of
from traceview.inspect.sass_vs_ptx import place_of


def unused_lanes(kernel: KernelContext) -> Iterator[Finding]:
    """Accesses of more than a scalar that are narrower in SASS than in PTX."""
    if kernel.provenance is None:
        return
    for difference in kernel.differences:
        one_value = (difference.source, difference.kind) in kernel.scalar_accesses
        if difference.change != "narrowed" or (difference.space == "global" and one_value):
            continue
        place = (difference.source, difference.kind, difference.space)
        unused = sum(
            kernel.provenance.unused_lanes(access)
            for access in kernel.accesses
            if access.level == "ptx" and place_of(access) == place
        )
        dead = "{unused_lanes:loaded value} never read" if unused else "likely unused values"
        yield Finding(
            "low",
            f"The {difference.kind} at {{line}} is narrower in SASS than in PTX: {{sass_widths}} "
            f"instead of {{ptx_widths}} ({dead})",
            "Load only the elements that are used, so that the other lanes carry useful data",
            subject=subject_of(difference.source, kernel.compiled),
            evidence=Evidence(
                {
                    "line": line_name(difference.source),
                    "ptx_widths": difference.ptx,
                    "sass_widths": difference.sass,
                    "unused_lanes": unused,
                    "proven": bool(unused),
                },
                basis="PTX and SASS of the same line, side by side",
            ),
        )
