"""How far the CPU runs ahead of the GPU, and what ends its lead.

A long queue wait is healthy: the CPU queued work early, and the GPU always finds some. What costs
time is a GPU that runs dry; the verdict says why it does, or that it does not.
"""

from __future__ import annotations

import numpy as np

from traceview import units
from traceview.analyses.base import Analysis, Chart, Finding, Result, TableSpec
from traceview.facts.idle import CAUSES, DEPENDENCY, LAUNCH_LATE, SYNC_DRAIN, Gaps, busy_ns, gaps
from traceview.facts.operations import operations
from traceview.facts.queue import FULL, depth_of, wait_of
from traceview.facts.selection import selected, selected_operations
from traceview.facts.steps import Steps, steps, steps_ahead
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
    ),
    brief=(
        "stream_id",
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
            "GPU idle from the first step on, one-time loading left out",
        ),
    ),
    brief=(
        "device_id",
        "verdict",
        "operations",
        "queue_wait_median_ns",
        "max_queue_depth",
        "steady_idle_pct",
        "queue_wait_max_ns",
    ),
)
RANGES = TableSpec(
    "ranges",
    "one row an instance of an outermost repeated range (a step)",
    (
        Column("name", "text", "name of the range"),
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
    ),
    brief=("name", "lead_ns", "steps_ahead", "operations", "cpu_start_ns", "gpu_start_ns"),
)

IDLE_PCT = 5.0
"""Run dry for less than this share of time, a device counts as kept busy."""
VERDICTS = {
    "gpu-bound": "it always finds work and is the limit",
    "queue-full": "the CPU is so far ahead that the launch queue is full and holds it back",
    "launch-bound": "the GPU runs dry because the CPU launches too late",
    "sync-drained": "the CPU loses its lead in synchronizations, and the GPU runs dry after them",
    "mixed": "the GPU runs dry for several reasons",
}


def compute(trace: Trace) -> Result:
    found = steps(trace)
    devices = _devices(trace, found)
    ranges = _ranges(trace, found)
    return Result(
        {"streams": _streams(trace), "devices": devices, "ranges": ranges},
        _findings(devices, ranges),
    )


def _streams(trace: Trace) -> Table:
    done = operations(trace)
    chosen = selected_operations(trace)
    rows = []
    for number, (process, device, context, stream) in enumerate(done.streams.tolist()):
        mine = done.stream == number
        if not (mine & chosen).any():
            continue
        wait, depth = wait_of(trace, mine & chosen), depth_of(trace, mine)
        rows.append(
            {
                "process_id": int(trace.processes["process_id"][process]),
                "device_id": int(trace.devices["device_id"][device]),
                "context_id": context,
                "stream_id": stream,
                "operations": int((mine & chosen).sum()),
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
    begin_ns = _begin_ns(found)
    rows: list[dict[str, Cell]] = []
    for device in np.unique(done.device[chosen]).tolist():
        mine = done.device == device
        wait, depth = wait_of(trace, mine & chosen), depth_of(trace, mine)
        idle_pct = _steady_idle_pct(trace, device, begin_ns)
        rows.append(
            {
                "device_id": int(trace.devices["device_id"][device]),
                "operations": int((mine & chosen).sum()),
                "queue_wait_median_ns": wait.median_ns,
                "queue_wait_max_ns": wait.most_ns,
                "max_queue_depth": depth.most,
                "verdict": _verdict(trace, device, depth.most, found),
                "steady_idle_pct": idle_pct,
            }
        )
    return Table.from_rows(DEVICES.columns, rows)


def _steady_idle_pct(trace: Trace, device: int, begin_ns: int) -> float:
    """Share of idle in the device's time from the first step on, one-time loading left out."""
    gap, work_ns = gaps(trace), _work_ns(trace, device, begin_ns)
    idle_ns = int(gap.idle_ns[_steady(gap, device, begin_ns)].sum())
    return 100.0 * idle_ns / max(work_ns + idle_ns, 1)


def _work_ns(trace: Trace, device: int, begin_ns: int) -> int:
    """Busy time of the device with selected work from the first step on."""
    done = operations(trace)
    mine = selected_operations(trace) & (done.device == device) & (done.start_ns >= begin_ns)
    return busy_ns(trace, mine)


def _begin_ns(found: Steps) -> int:
    """Start of the first step: what comes before is set-up. Without steps, everything counts."""
    work = found.operations > 0
    return int(found.cpu_start_ns[work].min()) if work.any() else np.iinfo(np.int64).min


def _steady(gap: Gaps, device: int, begin_ns: int) -> Mask:
    """True for the gaps of a device from the first step on, those of one-time loading left out."""
    result: Mask = (gap.device == device) & ~gap.one_time & (gap.start_ns >= begin_ns)
    return result


def _verdict(trace: Trace, device: int, depth: int, found: Steps) -> str:
    """What limits the device, told from the time in which it had run dry after set-up."""
    gap = gaps(trace)
    begin_ns = _begin_ns(found)
    dry = _steady(gap, device, begin_ns) & (gap.cause != DEPENDENCY)
    idle = np.bincount(gap.cause[dry], gap.idle_ns[dry], minlength=len(CAUSES))
    if 100.0 * idle.sum() < IDLE_PCT * (idle.sum() + _work_ns(trace, device, begin_ns)):
        if _drained_steps(gap, dry, found):
            return "sync-drained"
        return "queue-full" if depth >= FULL else "gpu-bound"
    if idle[SYNC_DRAIN] > idle.sum() / 2:
        return "sync-drained"
    return "launch-bound" if idle[LAUNCH_LATE] > idle.sum() / 2 else "mixed"


def _drained_steps(gap: Gaps, mine: Mask, found: Steps) -> bool:
    """Does a synchronization let the GPU run dry in at least half of the steps?

    Asked of series of three steps or more: the lead of the last one always ends in a wait.
    """
    drained = np.sort(gap.start_ns[mine & (gap.cause == SYNC_DRAIN)])
    for series in np.unique(found.series):
        rows = found.series == series
        if rows.sum() < 3:
            continue
        start, end = found.cpu_start_ns[rows], found.cpu_end_ns[rows]
        hit = np.searchsorted(drained, end) > np.searchsorted(drained, start)
        if 2 * hit.sum() >= rows.sum():
            return True
    return False


def _ranges(trace: Trace, found: Steps) -> Table:
    idle = found.operations == 0
    values: dict[str, Array | Texts] = {
        "name": Texts.of(found.name),
        "process_id": trace.processes["process_id"][found.process],
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


def _findings(devices: Table, ranges: Table) -> tuple[Finding, ...]:
    """The verdict of each device; idle time itself is a finding of other analyses."""
    findings = []
    for row in devices.rows():
        verdict = str(row["verdict"])
        wait, depth = row["queue_wait_median_ns"], row["max_queue_depth"]
        findings.append(
            Finding(
                "info",
                f"GPU {row['device_id']} is {verdict}: {VERDICTS[verdict]}; an operation waits "
                f"{units.quantity('ns', wait)} in the queue (median), at most {depth} are queued"
                f"{_lead(ranges)}",
                _ACTIONS[verdict],
                0,
            )
        )
    return tuple(findings)


def _lead(ranges: Table) -> str:
    lead = ranges["lead_ns"][~ranges.is_null("lead_ns")]
    if not len(lead):
        return ""
    ahead = ranges["steps_ahead"][~ranges.is_null("lead_ns")]
    median = float(np.median(lead))
    side = "before" if median >= 0 else "after"
    return (
        f"; the CPU ends a step {units.duration(abs(median))} {side} the GPU does (median) and is "
        f"up to {units.counted(int(ahead.max()), 'step')} ahead"
    )


_ACTIONS = {
    "gpu-bound": "Make the kernels faster: the launches are early enough.",
    "queue-full": "Make the kernels faster: launching earlier cannot help.",
    "launch-bound": "Launch less often or earlier: fuse, batch, torch.compile, or a CUDA graph.",
    "sync-drained": "Read results on the CPU less often, or later, with a non-blocking copy.",
    "mixed": "Look at the causes under GPU idle, the largest first.",
}

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
