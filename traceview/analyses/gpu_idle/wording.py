"""Words for what a thread did in idle gaps, and for operations."""

from __future__ import annotations

from traceview.facts.idle.gap_parts import IN_FLIGHT, OFF_CPU, OUTSIDE_CUDA, QUEUE_FULL
from traceview.facts.kernel_names.kernel_labels import kernel_labels
from traceview.facts.operations.operations import Kind, operations
from traceview.trace import Trace

_ACTIVITIES = {
    OUTSIDE_CUDA: ("outside CUDA", "outside CUDA"),
    IN_FLIGHT: ("launch in flight", "with the launch in flight"),
    QUEUE_FULL: ("launch queue full", "at a full launch queue"),
    OFF_CPU: ("off the CPU", "off the CPU"),
}
"""What a thread did other than a CUDA call: a cell, and the clause in `spent 3 ms outside CUDA`."""


def activity_name(trace: Trace, activity: int) -> str:
    """A cell for what a thread did: the name of a CUDA call, or one of _ACTIVITIES."""
    return _ACTIVITIES[activity][0] if activity < 0 else _api(trace, activity)


def activity_clause(trace: Trace, activity: int) -> str:
    """The clause on a thread's activity, to follow a length of time."""
    return _ACTIVITIES[activity][1] if activity < 0 else f"in {_api(trace, activity)}"


def _api(trace: Trace, code: int) -> str:
    return str(trace.recorded("api_calls").texts("name").values[code])


def operation_name(trace: Trace, operation: int) -> str:
    """The name of an operation: the label of a kernel, or its kind."""
    ops = operations(trace)
    kind, row = int(ops.kind[operation]), int(ops.row[operation])
    if kind == Kind.KERNEL:
        return str(kernel_labels(trace)[row])
    if kind == Kind.COPY:
        return f"{trace.copies.texts('direction')[row]} copy"
    return "memset" if kind == Kind.SET else "CUDA graph"
