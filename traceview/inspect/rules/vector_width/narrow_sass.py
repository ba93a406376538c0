"""Narrow global accesses of a kernel of which only the SASS is known."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.vector_width.causes import WIDE_BITS
from traceview.inspect.sass_vs_ptx import widths, widths_text

_MOVES = ("load", "store", "async-copy")


def narrow_sass_accesses(kernel: KernelContext) -> Iterator[Finding]:
    """A finding on the number of narrow accesses; SASS alone does not show why."""
    if kernel.provenance is not None:
        return
    moves = [
        a for a in kernel.accesses if a.space == "global" and a.kind in _MOVES and a.width_bits
    ]
    narrow = [access for access in moves if (access.width_bits or 0) < WIDE_BITS]
    if not narrow:
        return
    yield Finding(
        "medium",
        "{instructions} of {all_instructions} global accesses move less than "
        f"{WIDE_BITS} bits per thread per instruction ({{widths}})",
        "Inspect the kernel's PTX or its source to find the cause",
        subject=subject_of(narrow[0].source, kernel.compiled),
        evidence=Evidence(
            {
                "instructions": sum(access.count for access in narrow),
                "all_instructions": sum(access.count for access in moves),
                "width_bits": max(widths(narrow)),
                "wanted_bits": WIDE_BITS,
                "widths": widths_text(widths(narrow)),
                "cause": None,
                "proven": False,
            },
            basis="SASS, which does not show the cause",
        ),
    )
