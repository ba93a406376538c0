"""Names of a trace as they stand in a sentence."""

from __future__ import annotations

from traceview.facts.operations.kernel_labels import kernel_labels
from traceview.facts.operations.operations import Kind, operations
from traceview.trace import Trace


def label(trace: Trace, operation: int) -> str:
    """What an operation is called: the kernel's label, or what else it is."""
    done = operations(trace)
    kind, row = int(done.kind[operation]), int(done.row[operation])
    if kind == Kind.KERNEL:
        return str(kernel_labels(trace)[row])
    if kind == Kind.COPY:
        return f"copy {trace.copies.texts('direction')[row]}"
    return "set" if kind == Kind.SET else "CUDA graph"
