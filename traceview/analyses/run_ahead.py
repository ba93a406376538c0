"""How far the CPU runs ahead of the GPU, and what ends its lead.

A long queue wait is healthy: the CPU queued work early, and the GPU always finds some. What costs
time is a GPU that runs dry; the verdict says why it does, or that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Keep, Result, TableSpec
from traceview.facts.idle.gaps import (
    CAUSES,
    DEPENDENCY,
    LAUNCH_LATE,
    SYNC_DRAIN,
    Gaps,
    copying_ns,
    device_work,
    every_gap,
    gaps,
)
from traceview.facts.idle.late_launches import late_places
from traceview.facts.operations.hosts import HOST, device_hosts, on_host, process_hosts
from traceview.facts.operations.operations import operations
from traceview.facts.queue.launch_queue import queue_full
from traceview.facts.queue.queue import depth_of, rows_by_stream, stream_depth, wait_of
from traceview.facts.ranges.selection import selected, selected_calls, selected_operations
from traceview.facts.steps.names import step_names
from traceview.facts.steps.steps import Steps, steps, steps_ahead
from traceview.findings import Finding
from traceview.tables import NULL, Array, Cell, Column, Integers, Mask, Table, Texts
from traceview.trace import Trace

STREAMS = TableSpec(
    "streams",
    "one row a stream that did work",
    (
        Column("process_id", "int64", "id of the operating system"),
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("context_id", "int32", "CUDA context, unique within the process"),
        Column("stream_id", "int32", "CUDA stream, unique within the context"),
        Column("operations", "int64", "kernels, copies, sets and whole graphs"),
        Column("queue_wait_median_ns", "int64", "median of the queue waits", nullable=True),
        Column("queue_wait_p90_ns", "int64", "90th percentile of the queue waits", nullable=True),
        Column("queue_wait_max_ns", "int64", "longest queue wait", nullable=True),
        Column("max_queue_depth", "int64", "most operations launched and not ended"),
        Column("mean_queue_depth", "float64", "its mean over time"),
        HOST,
    ),
    brief=(
        "stream_id",
        "host_id",
        "operations",
        "queue_wait_median_ns",
        "queue_wait_p90_ns",
        "max_queue_depth",
        "mean_queue_depth",
        "queue_wait_max_ns",
        "process_id",
        "device_id",
        "context_id",
    ),
)
DEVICES = TableSpec(
    "devices",
    "one row a GPU that did work",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("operations", "int64", "kernels, copies, sets and whole graphs"),
        Column("queue_wait_median_ns", "int64", "median of the queue waits", nullable=True),
        Column("queue_wait_max_ns", "int64", "longest queue wait", nullable=True),
        Column("max_queue_depth", "int64", "most operations launched and not ended"),
        Column("verdict", "text", "gpu-bound, launch-bound, sync-drained, queue-full or mixed"),
        Column(
            "steady_idle_pct",
            "float64",
            "GPU idle after set-up, first uses left out; absent where all is set-up: then that is "
            "what the verdict speaks of",
            nullable=True,
        ),
        Column("queue_full_ns", "int64", "time calls stood before a full launch queue"),
        HOST,
    ),
    brief=(
        "device_id",
        "host_id",
        "verdict",
        "operations",
        "queue_wait_median_ns",
        "max_queue_depth",
        "steady_idle_pct",
        "queue_full_ns",
        "queue_wait_max_ns",
    ),
)
RANGES = TableSpec(
    "ranges",
    "one row an instance of an outermost repeated range (a step)",
    (
        Column("name", "text", "name of the range, with the path or a count where names repeat"),
        Column("process_id", "int64", "id of the operating system"),
        Column("cpu_start_ns", "int64", "the CPU begins the range"),
        Column("cpu_end_ns", "int64", "the CPU ends it"),
        Column("gpu_start_ns", "int64", "the GPU begins its work", nullable=True),
        Column("gpu_end_ns", "int64", "the GPU ends it", nullable=True),
        Column("lead_ns", "int64", "gpu_end less cpu_end: how far ahead the CPU is", nullable=True),
        Column(
            "steps_ahead",
            "int64",
            "steps the CPU has begun beyond this one when its GPU work starts",
            nullable=True,
        ),
        Column("operations", "int64", "GPU work launched in it"),
        HOST,
    ),
    brief=(
        "name",
        "host_id",
        "lead_ns",
        "steps_ahead",
        "operations",
        "cpu_start_ns",
        "gpu_start_ns",
    ),
    adds=("operations",),
    # Where the CPU has lost its lead is where to look.
    keep=Keep("lead_ns", greatest=False),
)

IDLE_PCT = 5.0
"""Run dry for less than this share of time, a device counts as kept busy."""
VERDICTS = {
    "gpu-bound": "it nearly always finds work and is the limit",
    "queue-full": "the CPU is so far ahead that the launch queue is full and holds it back",
    "launch-bound": "the GPU runs dry because the CPU launches too late",
    "sync-drained": "the CPU loses its lead in synchronizations, and the GPU runs dry after them",
    "mixed": "it runs dry for several reasons, or queued work waits for other work",
}


def compute(trace: Trace) -> Result:
    found = steps(trace)
    devices = _devices(trace, found)
    ranges = _ranges(trace, found)
    return Result(
        {"streams": _streams(trace), "devices": devices, "ranges": ranges},
        _findings(trace, devices, found),
    )


def _streams(trace: Trace) -> Table:
    done = operations(trace)
    chosen = selected_operations(trace)
    hosts = device_hosts(trace)
    rows = []
    for number, (process, device, context, stream) in enumerate(done.streams.tolist()):
        mine = rows_by_stream(trace)[number]
        mine = mine[chosen[mine]]
        if not len(mine):
            continue
        wait, depth = wait_of(trace, mine), stream_depth(trace, number)
        rows.append(
            {
                "process_id": int(trace.processes["process_id"][process]),
                "device_id": int(trace.devices["device_id"][device]),
                "host_id": None if hosts[device] == NULL else int(hosts[device]),
                "context_id": context,
                "stream_id": stream,
                "operations": len(mine),
                "queue_wait_median_ns": wait.median_ns,
                "queue_wait_p90_ns": wait.p90_ns,
                "queue_wait_max_ns": wait.most_ns,
                "max_queue_depth": depth.most,
                "mean_queue_depth": depth.mean,
            }
        )
    return Table.from_rows(STREAMS.columns, rows)


def _devices(trace: Trace, found: Steps) -> Table:
    done = operations(trace)
    chosen = selected_operations(trace)
    hosts = device_hosts(trace)
    rows: list[dict[str, Cell]] = []
    for device in groups.different(done.device[chosen]).tolist():
        mine = done.device == device
        wait, depth = wait_of(trace, mine & chosen), depth_of(trace, np.flatnonzero(mine), chosen)
        rows.append(
            {
                "device_id": int(trace.devices["device_id"][device]),
                "host_id": None if hosts[device] == NULL else int(hosts[device]),
                "operations": int((mine & chosen).sum()),
                "queue_wait_median_ns": wait.median_ns,
                "queue_wait_max_ns": wait.most_ns,
                "max_queue_depth": depth.most,
                "verdict": _verdict(trace, device, found),
                "steady_idle_pct": _steady_idle_pct(trace, device),
                "queue_full_ns": _queue_full_ns(trace, device),
            }
        )
    return Table.from_rows(DEVICES.columns, rows)


def _steady_idle_pct(trace: Trace, device: int) -> float | None:
    """Share of idle in the device's time after set-up, first uses left out."""
    if not device_work(trace)[device].steady_ns:
        return None
    work_ns = _work_ns(trace, device)
    idle_ns = int(gaps(trace).idle_ns[_counted(trace, device, gaps(trace))].sum())
    return 100.0 * idle_ns / max(work_ns + idle_ns, 1)


def _work_ns(trace: Trace, device: int) -> int:
    """Busy time of the device with selected work after set-up, with all of it if that is none."""
    work = device_work(trace)[device]
    return work.steady_ns or work.all_ns


def _counted(trace: Trace, device: int, gap: Gaps) -> Mask:
    """True for the gaps of a device after set-up, those of first uses left out.

    All of them for a device that did nothing after set-up.
    """
    mine: Mask = gap.device == device
    return mine & ~gap.one_time if device_work(trace)[device].steady_ns else mine


def _verdict(trace: Trace, device: int, found: Steps) -> str:
    """What limits the device, told from the time in which it had run dry after set-up."""
    gap = gaps(trace)
    steady = _counted(trace, device, gap)
    idle = np.bincount(gap.cause[steady], gap.idle_ns[steady], minlength=len(CAUSES))
    dry = idle.sum() - idle[DEPENDENCY]
    limit = IDLE_PCT / 100.0 * (idle.sum() + _work_ns(trace, device))
    if dry > limit:
        if idle[SYNC_DRAIN] > dry / 2:
            return "sync-drained"
        return "launch-bound" if idle[LAUNCH_LATE] > dry / 2 else "mixed"
    if _drained_steps(trace, device, found):
        return "sync-drained"
    if idle[DEPENDENCY] > limit:
        return "mixed"
    return "queue-full" if _queue_full_ns(trace, device) else "gpu-bound"


def _queue_full_ns(trace: Trace, device: int) -> int:
    """Time in which calls that enqueued work on the device stood before a full queue."""
    done, full = operations(trace), queue_full(trace)
    if not full.by_thread:
        return 0
    mine = groups.different(done.call[(done.device == device) & done.launched])
    return int(full.held_ns[mine[selected_calls(trace)[mine]]].sum())


def _drained_steps(trace: Trace, device: int, found: Steps) -> bool:
    """Does a synchronization let the GPU run dry in at least half of the selected steps?"""
    gap = every_gap(trace)
    mine = _counted(trace, device, gap)
    drained = np.sort(gap.start_ns[mine & (gap.cause == SYNC_DRAIN)])
    chosen = selected(trace, found.process, found.cpu_start_ns)
    after, before = (np.searchsorted(drained, at) for at in (found.cpu_end_ns, found.cpu_start_ns))
    hits = np.bincount(found.series[chosen & (after > before)])
    every = np.bincount(found.series[chosen])[: len(hits)]
    return bool(((hits > 0) & (2 * hits >= every)).any())


def _ranges(trace: Trace, found: Steps) -> Table:
    idle = found.operations == 0
    values: dict[str, Array | Texts] = {
        "name": step_names(trace),
        "process_id": trace.processes["process_id"][found.process],
        "host_id": process_hosts(trace)[found.process],
        "cpu_start_ns": found.cpu_start_ns,
        "cpu_end_ns": found.cpu_end_ns,
        "gpu_start_ns": _unless(idle, found.gpu_start_ns),
        "gpu_end_ns": _unless(idle, found.gpu_end_ns),
        "lead_ns": _unless(idle, found.gpu_end_ns - found.cpu_end_ns),
        "steps_ahead": _unless(idle, steps_ahead(found)),
        "operations": found.operations,
    }
    chosen = selected(trace, found.process, found.cpu_start_ns)
    return Table(RANGES.columns, values).take(chosen)


def _unless(absent: Mask, values: Integers) -> Integers:
    return np.where(absent, NULL, values)


def _findings(trace: Trace, devices: Table, found: Steps) -> tuple[Finding, ...]:
    """The verdict of each device; what idle time costs is a finding of other analyses."""
    used = groups.different(operations(trace).device[selected_operations(trace)]).tolist()
    return tuple(
        _finding(trace, row, device, found)
        for row, device in zip(devices.rows(), used, strict=True)
    )


def _finding(trace: Trace, row: Mapping[str, Cell], device: int, found: Steps) -> Finding:
    verdict, gap = str(row["verdict"]), gaps(trace)
    drained = _counted(trace, device, gap) & (gap.cause == SYNC_DRAIN)
    idle_ns = int(gap.idle_ns[drained].sum()) if verdict == "sync-drained" else 0
    copies, action = _advice(trace, device, verdict)
    cost = f", which leaves it idle for {units.duration(idle_ns)}" if idle_ns else ""
    return Finding(
        "info",
        f"GPU {row['device_id']}{on_host(trace, device)} is {verdict}: "
        f"{VERDICTS[verdict]}{cost}{copies}; an operation waits "
        f"{units.quantity('ns', row['queue_wait_median_ns'])} in the queue (median), at most "
        f"{row['max_queue_depth']} are queued{_lead(trace, device, found)}",
        action,
        idle_ns,
    )


def _advice(trace: Trace, device: int, verdict: str) -> tuple[str, str]:
    """What to do about a verdict, with what that rests on beside the verdict."""
    action = _ACTIONS[verdict]
    if verdict == "launch-bound":
        place = late_places(trace).worst(device)
        return "", _BETWEEN if place and place.elsewhere else action
    copying, work = copying_ns(trace, device), _work_ns(trace, device)
    if verdict not in ("gpu-bound", "queue-full") or 2 * copying < work:
        return "", action
    said = f"; for {units.duration(copying)} of {units.duration(work)} of its work it only copies"
    return said, _COPY_LESS


def _lead(trace: Trace, device: int, found: Steps) -> str:
    """How far the CPU is ahead at the end of a step, for steps that work on this device alone."""
    done = operations(trace)
    elsewhere = groups.different(done.process[done.device != device])
    here = groups.different(done.process[done.device == device])
    mine = (found.operations > 0) & np.isin(found.process, np.setdiff1d(here, elsewhere))
    mine &= selected(trace, found.process, found.cpu_start_ns)
    if not mine.any():
        return ""
    median = float(np.median((found.gpu_end_ns - found.cpu_end_ns)[mine]))
    side = "before" if median >= 0 else "after"
    most = int(steps_ahead(found)[mine].max())
    ahead = f"up to {units.counted(most, 'step')} ahead" if most else "never a whole step ahead"
    return (
        f"; the CPU ends a step {units.duration(abs(median))} {side} the GPU does (median) and is "
        f"{ahead}"
    )


_ACTIONS = {
    "gpu-bound": "Make the kernels faster: the launches are early enough.",
    "queue-full": "Make the kernels faster: launching earlier cannot help.",
    "launch-bound": "Launch less often or earlier: fuse, batch, torch.compile, or a CUDA graph.",
    "sync-drained": "Read results on the CPU less often, or later, with a non-blocking copy.",
    "mixed": "Look at the causes under GPU idle, the largest first.",
}
_BETWEEN = (
    "Look under GPU idle for what the CPU did between the launches: it was away so long that fewer "
    "launches would not help."
)
_COPY_LESS = (
    "Make the copies fewer or faster, or run them beside kernels on a stream of their own (see "
    "Memory copies): the launches are early enough."
)

ANALYSIS = Analysis(
    name="run-ahead",
    title="CPU run-ahead",
    question="Does the CPU queue work early enough, and what ends its lead?",
    needs=("kernels", "api_calls"),
    tables=(DEVICES, STREAMS, RANGES),
    compute=compute,
    charts=(
        Chart(
            "spans",
            "ranges",
            "When the CPU issued each step and when the GPU did its work",
            label="name",
            value="cpu_start_ns",
            end="cpu_end_ns",
            value2="gpu_start_ns",
            end2="gpu_end_ns",
        ),
    ),
)
