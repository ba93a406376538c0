"""Words for the causes of idle gaps, for what a thread did in them, and for operations."""

from __future__ import annotations

from traceview.facts.idle.gap_parts import IN_FLIGHT, OFF_CPU, OUTSIDE_CUDA, QUEUE_FULL
from traceview.facts.kernel_names.kernel_labels import kernel_labels
from traceview.facts.operations.operations import Kind, operations
from traceview.trace import Trace

MEANINGS = {
    "launch-late": "nothing was queued: the CPU had not launched the next work yet",
    "sync-drain": "the GPU ran dry in or right after a synchronization, and the CPU launched the "
    "next work only after it",
    "dependency": "the next work was queued but waited for another stream or an event, or for the "
    "GPU to move on to it",
    "copy-wait": "the next work was queued behind a copy, or was a copy whose bytes the CPU first "
    "had to move out of pageable memory",
    "graph-launch": "the CPU spent most of the gap launching, instantiating or uploading the CUDA "
    "graph that came next",
    "jit-compile": "the driver spent most of the gap compiling PTX for this GPU",
    "module-load": "the CPU spent most of the gap loading GPU code",
    "allocation": "the CPU spent most of the gap allocating or freeing memory",
    "profiler": "the profiler held the CPU up for most of the gap",
    "compilation": "a compiler worked for most of the gap, or a library tried algorithms (phases)",
    "lost-work": "launches were made for which no work was recorded: it may have run in the gap",
    "unknown": "the launch call of the next work was not recorded",
}
"""What each of CAUSES means, in that order."""

ACTIVITIES = {
    OUTSIDE_CUDA: "outside CUDA",
    IN_FLIGHT: "launch in flight",
    QUEUE_FULL: "launch queue full",
    OFF_CPU: "off the CPU",
}
"""Cells for what a thread did, other than a CUDA call."""

SPENT = {
    OUTSIDE_CUDA: "outside CUDA",
    IN_FLIGHT: "with the launch in flight",
    QUEUE_FULL: "at a full launch queue",
    OFF_CPU: "off the CPU",
}
"""Clauses for the ACTIVITIES behind a length of time, as in `spent 3 ms outside CUDA`."""


def activity_name(trace: Trace, activity: int) -> str:
    """A cell for what a thread did: the name of a CUDA call, or one of ACTIVITIES."""
    return ACTIVITIES[activity] if activity < 0 else _api(trace, activity)


def activity_clause(trace: Trace, activity: int) -> str:
    """The clause on a thread's activity, to follow a length of time."""
    return SPENT[activity] if activity < 0 else f"in {_api(trace, activity)}"


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
