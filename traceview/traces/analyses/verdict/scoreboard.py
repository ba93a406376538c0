"""The scoreboard of a recording, and the steady time of one device divided by what it went to.

The parts of the time add up to it exactly: of work that runs at once, that counts which started
first. Communication counts where nothing computes, copies where neither runs, as in the verdict.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

from traceview.base.records import record
from traceview.base.tables import NULL, column_list
from traceview.base.vocabulary.causes import Limit
from traceview.traces.analyses.verdict import verdict
from traceview.traces.analyses.verdict.parts import (
    SteadyParts,
    busy_by_kind,
    idle_by_kind,
    main_loop,
    steady_parts,
    steady_rows,
)
from traceview.traces.facts.idle import first_calls
from traceview.traces.facts.idle.gaps import device_work, main_device, steady_spans_ns
from traceview.traces.facts.idle.launching import verdict as launch_verdict
from traceview.traces.facts.kernel_classes import communication_operations
from traceview.traces.facts.memory import levels, moments
from traceview.traces.facts.operations import Kind, operations
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.trace import Trace, fact

SCOREBOARD = column_list("""
    device_id int64?: GPU with the longest steady time
    devices int64: GPUs with selected work
    steady_ns int64?: time of that GPU after warm-up and first uses
    gpu_busy_pct float64?: percentage of it with work on the GPU; null where the recording lost much
        of the work, or holds first calls alone
    steps int64: steps of the main loop, warm-up included
    warm_up_steps int64: steps of these that are warm-up
    step_median_ns int64?: median step after warm-up
    launch text?: gpu-bound, launch-bound, sync-drained, dependency-bound, queue-full, mixed or
        unknown, as in run-ahead; kept-busy where a gpu-bound GPU begins most of its work as soon
        as it is launched; where the CPU launches late, data-loading for want of data, paced
        for its turn, paused in few long pauses, message-bound in calls of MPI, cpu-bound for other
        work of the CPU; null for under four operations, or next to no GPU work
    communication_ns int64?: steady time in communication that no other work covers; null for no
        communication
    communication_pct float64?: that time as a share of steady_ns
    copies_ns int64?: steady time in copies that no other work covers, or idle until one ends; null
        for none
    copies_pct float64?: that time as a share of steady_ns
    copies_exposed_ns int64?: the part of copies_ns in which the GPU is busy with copies alone
    memory_peak_bytes int64?: most device memory allocated at once; null where it was not recorded
    memory_total_bytes int64?: size of the GPU's memory
""")
"""Names, types and meanings of the fields of a Scoreboard, in its order."""


@record
class Scoreboard:
    """The figures to look at first; SCOREBOARD has the meaning of each. None for what is absent."""

    device_id: int | None
    devices: int
    steady_ns: int | None
    gpu_busy_pct: float | None
    steps: int
    warm_up_steps: int
    step_median_ns: int | None
    launch: str | None
    communication_ns: int | None
    communication_pct: float | None
    copies_ns: int | None
    copies_pct: float | None
    copies_exposed_ns: int | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None


@fact
def scoreboard(trace: Trace) -> Scoreboard:
    """The scoreboard of the selected part of a trace."""
    loop, parts = main_loop(trace), steady_parts(trace)
    if parts is None:
        figures = (loop.steps, loop.warm_up, loop.median_ns)
        return Scoreboard(None, 0, None, None, *figures, *[None] * 8)
    ops, communicating = operations(trace), communication_operations(trace)
    own = selected_operations(trace) & (ops.device == parts.device)
    copying = (ops.kind == Kind.COPY) & ~communicating
    communicates, copies = (bool((own & of).any()) for of in (communicating, copying))
    once = first_calls.shows_first_calls_alone(trace)
    communication_ns = parts.parts_ns.get("communication", 0) if communicates else None
    copies_ns = parts.parts_ns.get("copies", 0) if copies else None
    total = int(trace.devices["total_memory_bytes"][parts.device])

    def share(part: Limit, time_ns: int | None) -> float | None:
        # Lost work may have run beside it.
        return None if time_ns is None or parts.unknown or once else parts.pct(part)

    return Scoreboard(
        device_id=int(trace.devices["device_id"][parts.device]),
        devices=len(device_work(trace)),
        steady_ns=parts.span_ns,
        gpu_busy_pct=None if parts.unknown or once else parts.busy_pct,
        steps=loop.steps,
        warm_up_steps=loop.warm_up,
        step_median_ns=loop.median_ns,
        launch=_launch(trace, parts),
        communication_ns=communication_ns,
        communication_pct=share("communication", communication_ns),
        copies_ns=copies_ns,
        copies_pct=share("copies", copies_ns),
        copies_exposed_ns=parts.busy_copies_ns if copies else None,
        memory_peak_bytes=_memory_peak(trace, parts.device),
        memory_total_bytes=None if total == NULL else total,
    )


def _launch(trace: Trace, parts: SteadyParts) -> str | None:
    few = len(steady_rows(trace, parts.device)) < verdict.LEAST_OPERATIONS
    if few or first_calls.shows_first_calls_alone(trace):
        return None
    limit = launch_verdict(trace, parts.device)
    if verdict.keeps_busy(trace, parts.device):
        return "kept-busy"
    return verdict.late_word(trace, parts.device) if limit == "launch-bound" else limit


def _memory_peak(trace: Trace, device: int) -> int | None:
    """As in the table `peaks` of the analysis of memory."""
    if device not in levels(trace) or not len(times := moments(trace, device)):
        return None
    return int(levels(trace)[device].at(times).max())


@record
class TimePart:
    """Time of one kind.

    `name` is a class of kernels, graph, copy, memset, or a cause of idle time; where launches are
    late behind an activity of the CPU that is known, that activity.
    """

    kind: Literal["busy", "idle"]
    name: str
    time_ns: int


@record
class RunTime:
    """The time of one GPU after warm-up: `parts` add up to `steady_ns`.

    Busy parts come first, each kind in descending order. `run_ns` is the whole run, from the first
    start to the last end of anything recorded; `devices` counts the GPUs with steady time.
    """

    device_id: int
    devices: int
    run_ns: int
    steady_ns: int
    parts: tuple[TimePart, ...]


def run_time(trace: Trace, run_ns: int) -> RunTime | None:
    """The time of the device with the longest steady span; None where no GPU work is selected.

    `run_ns` is the duration of the recording.
    """
    of_gpu = _longest_steady(trace)
    return replace(of_gpu, run_ns=run_ns) if of_gpu else None


@fact
def _longest_steady(trace: Trace) -> RunTime | None:
    """`run_time`, of a run of unknown duration."""
    device, spans = main_device(trace), steady_spans_ns(trace)
    if device < 0:
        return None
    busy = [TimePart("busy", *part) for part in busy_by_kind(trace).items()]
    idle_ns = Counter[str]()
    for kind, time_ns in idle_by_kind(trace).items():
        # Compilation is a cause where phases finds it, and an activity where samples do.
        idle_ns[kind.name] += time_ns
    idle = [TimePart("idle", *part) for part in idle_ns.items()]
    ordered = sorted(busy + idle, key=lambda part: (part.kind, -part.time_ns))
    device_id = int(trace.devices["device_id"][device])
    parts = tuple(part for part in ordered if part.time_ns)
    return RunTime(device_id, len(spans), 0, spans[device], parts)
