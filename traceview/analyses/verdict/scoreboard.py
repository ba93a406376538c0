"""The scoreboard of a recording: six figures to look at first, of the GPU with most steady time."""

from __future__ import annotations

from traceview.analyses.verdict.launching import verdict as launch_verdict
from traceview.analyses.verdict.loops import main_loop
from traceview.analyses.verdict.parts import steady_parts, steady_rows
from traceview.analyses.verdict.verdict import LEAST_OPERATIONS, waits_for_data
from traceview.facts.idle.gaps import device_work
from traceview.facts.memory.levels import levels, moments
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.selection import selected_operations
from traceview.records import record
from traceview.tables import NULL, Column
from traceview.trace import Trace, fact

SCOREBOARD = (
    Column("device_id", "int64", "GPU with the longest steady time", nullable=True),
    Column("devices", "int64", "GPUs with selected work"),
    Column("steady_ns", "int64", "time of that GPU after warm-up and first uses", nullable=True),
    Column(
        "gpu_busy_pct",
        "float64",
        "percentage of it with work on the GPU; null where the recording lost much of the work",
        nullable=True,
    ),
    Column("steps", "int64", "steps of the main loop, warm-up included"),
    Column("step_median_ns", "int64", "median step after warm-up", nullable=True),
    Column(
        "launch",
        "text",
        "gpu-bound, launch-bound, sync-drained, queue-full, mixed or unknown, as in run-ahead; "
        "data-loading where the CPU launches late for want of data; null for under four operations",
        nullable=True,
    ),
    Column(
        "communication_ns",
        "int64",
        "steady time in communication that no other work covers; null for no communication",
        nullable=True,
    ),
    Column("communication_pct", "float64", "that time as a share of steady_ns", nullable=True),
    Column(
        "copies_ns",
        "int64",
        "steady time in copies that no other work covers, or idle until one ends; null for none",
        nullable=True,
    ),
    Column("copies_pct", "float64", "that time as a share of steady_ns", nullable=True),
    Column(
        "memory_peak_bytes",
        "int64",
        "most device memory allocated at once; null where it was not recorded",
        nullable=True,
    ),
    Column("memory_total_bytes", "int64", "size of the GPU's memory", nullable=True),
)
"""Names, types and meanings of the fields of a Scoreboard, in its order."""


@record
class Scoreboard:
    """The figures to look at first; SCOREBOARD has the meaning of each. None for what is absent."""

    device_id: int | None
    devices: int
    steady_ns: int | None
    gpu_busy_pct: float | None
    steps: int
    step_median_ns: int | None
    launch: str | None
    communication_ns: int | None
    communication_pct: float | None
    copies_ns: int | None
    copies_pct: float | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None


@fact
def scoreboard(trace: Trace) -> Scoreboard:
    """The scoreboard of the selected part of a trace."""
    loop, parts = main_loop(trace), steady_parts(trace)
    if parts is None:
        return Scoreboard(None, 0, None, None, loop.steps, loop.median_ns, *[None] * 7)
    ops, communicating = operations(trace), communication_operations(trace)
    selected = selected_operations(trace) & (ops.device == parts.device)
    copying = ((ops.kind == Kind.COPY) | (ops.kind == Kind.SET)) & ~communicating
    communicates, copies = bool((selected & communicating).any()), bool((selected & copying).any())
    launch = None
    if len(steady_rows(trace, parts.device)) >= LEAST_OPERATIONS:
        launch = launch_verdict(trace, parts.device)
        if launch == "launch-bound" and waits_for_data(trace, parts.device):
            launch = "data-loading"
    # As in the table `peaks` of the analysis of memory.
    peak_bytes = None
    if parts.device in levels(trace) and len(times := moments(trace, parts.device)):
        peak_bytes = int(levels(trace)[parts.device].at(times).max())
    total = int(trace.devices["total_memory_bytes"][parts.device])
    return Scoreboard(
        device_id=int(trace.devices["device_id"][parts.device]),
        devices=len(device_work(trace)),
        steady_ns=parts.span_ns,
        gpu_busy_pct=None if parts.unknown else parts.busy_pct,
        steps=loop.steps,
        step_median_ns=loop.median_ns,
        launch=launch,
        communication_ns=parts.parts_ns.get("communication", 0) if communicates else None,
        communication_pct=parts.pct("communication") if communicates else None,
        copies_ns=parts.parts_ns.get("copies", 0) if copies else None,
        copies_pct=parts.pct("copies") if copies else None,
        memory_peak_bytes=peak_bytes,
        memory_total_bytes=None if total == NULL else total,
    )
