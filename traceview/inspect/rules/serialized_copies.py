"""Loops that wait for a copy right after they start it."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import line_name, subject_of
from traceview.ptx.async_groups import COPIES

_REMEDY = (
    "Start the copy of the next tile before this tile is used, into another buffer: in Triton, use "
    "one more stage (num_stages={more})"
)


def serialized_copies(kernel: KernelContext) -> Iterator[Finding]:
    """Copies in the hottest loop with no arithmetic between their start and the wait for them."""
    for wait in kernel.async_waits:
        if wait.kind not in COPIES or not wait.is_serial:
            continue
        more = (kernel.compiled.num_stages or 1) + 1
        yield Finding(
            "medium",
            "The hottest loop waits at {line} for the {kind} copies that it has just started: "
            "nothing overlaps them",
            _REMEDY.format(more=more),
            subject=subject_of(wait.source, kernel.compiled),
            evidence=Evidence(
                {"line": line_name(wait.source), "kind": wait.kind, "in_flight": wait.in_flight},
                basis="PTX: no arithmetic between the copies and the wait for all of them",
            ),
        )
