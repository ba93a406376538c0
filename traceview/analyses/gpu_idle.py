"""When the GPU had nothing to do, and why.

Busy is the union of kernels, copies, sets and whole graphs of all processes on a device.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Finding, Result, TableSpec, severity_of
from traceview.facts.idle import (
    ALLOCATION,
    CAUSES,
    DEPENDENCY,
    LAUNCH_LATE,
    PROFILER,
    UNKNOWN,
    Gaps,
    busy_ns,
    gaps,
    steady_span_ns,
)
from traceview.facts.operations import operations
from traceview.facts.ranges import UNATTRIBUTED, attributed_operations, range_tree
from traceview.facts.selection import selected_operations
from traceview.facts.steps import set_up_end_ns
from traceview.tables import Column, Table, Texts
from traceview.trace import Trace

DEVICES = TableSpec(
    "devices",
    "one row a GPU that did work",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("span_ns", "int64", "first start to last end of device work"),
        Column("busy_ns", "int64", "union of kernels, copies, sets and graphs"),
        Column("idle_ns", "int64", "span less busy"),
        Column("busy_pct", "float64", "busy of span"),
        Column("one_time_idle_ns", "int64", "idle in set-up and in first uses of kernels"),
        Column(
            "steady_busy_pct",
            "float64",
            "busy of span, both after set-up and without first uses",
        ),
    ),
    brief=(
        "device_id",
        "span_ns",
        "busy_ns",
        "idle_ns",
        "busy_pct",
        "steady_busy_pct",
        "one_time_idle_ns",
    ),
)
CAUSE_TABLE = TableSpec(
    "causes",
    "one row a GPU and cause, over all gaps",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("cause", "text", "why the work that ended the gap did not start earlier"),
        Column("gaps", "int64", "idle gaps"),
        Column("idle_ns", "int64", "their time"),
        Column("share_pct", "float64", "of the GPU's idle time"),
        Column("steady_idle_ns", "int64", "of it, after set-up"),
        Column("meaning", "text", "what the cause means"),
    ),
    brief=("device_id", "cause", "gaps", "idle_ns", "share_pct", "steady_idle_ns", "meaning"),
)
GAPS = TableSpec(
    "gaps",
    "the 100 longest idle gaps",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("start_ns", "int64", "when the GPU ran dry"),
        Column("duration_ns", "int64", "until work started again"),
        Column("cause", "text", "why the work that ended the gap did not start earlier"),
        Column("range_path", "text", "range in which the work that ended it was launched"),
        Column("next_operation", "text", "the work that ended it"),
    ),
    brief=("duration_ns", "cause", "range_path", "next_operation", "start_ns", "device_id"),
)
LONGEST = 100
ACTIONS = {
    LAUNCH_LATE: "Give the GPU more work per launch (fuse, batch, torch.compile, a CUDA graph), "
    "or take the CPU work between launches out of the loop.",
    DEPENDENCY: "Look at what the work waited for: another stream, a copy or an event. Short gaps "
    "between kernels of one stream go away with fusion or a CUDA graph.",
    ALLOCATION: "Allocate before the loop, or through a pool (torch's allocator, cudaMallocAsync).",
    PROFILER: "Record with fewer options; this time is the profiler's own.",
    UNKNOWN: "Record the CUDA API too (--trace=cuda), so that the launch calls are known.",
}


def compute(trace: Trace) -> Result:
    found = gaps(trace)
    devices = _devices(trace, found)
    return Result(
        {
            "devices": devices,
            "causes": _causes(trace, found),
            "gaps": _longest(trace, found),
        },
        (*_findings(found, steady_span_ns(trace)), *_one_time(trace, found)),
    )


def _devices(trace: Trace, found: Gaps) -> Table:
    done = operations(trace)
    chosen = selected_operations(trace)
    rows = []
    for device in np.unique(done.device[chosen]).tolist():
        mine = chosen & (done.device == device)
        work_ns = busy_ns(trace, mine)
        idle = found.idle_ns[found.device == device]
        here = found.device == device
        once = int(found.idle_ns[here & found.one_time].sum())
        span_ns = work_ns + int(idle.sum())
        steady_ns = busy_ns(trace, mine & (done.start_ns >= set_up_end_ns(trace)))
        steady_span = steady_ns + int(found.idle_ns[here & ~found.one_time].sum())
        rows.append(
            {
                "device_id": int(trace.devices["device_id"][device]),
                "span_ns": span_ns,
                "busy_ns": work_ns,
                "idle_ns": int(idle.sum()),
                "busy_pct": 100.0 * work_ns / max(span_ns, 1),
                "one_time_idle_ns": once,
                "steady_busy_pct": 100.0 * steady_ns / max(steady_span, 1),
            }
        )
    return Table.from_rows(DEVICES.columns, rows)


def _causes(trace: Trace, found: Gaps) -> Table:
    each = groups.group(found.device, found.cause)
    idle = groups.sums(each, found.idle_ns)
    names, meanings = list(CAUSES), list(CAUSES.values())
    cause = found.cause[each.first].tolist()
    device = found.device[each.first]
    whole = np.array([found.idle_ns[found.device == d].sum() for d in device], np.int64)
    table = Table(
        CAUSE_TABLE.columns,
        {
            "device_id": trace.devices["device_id"][device],
            "cause": Texts.of(names[c] for c in cause),
            "gaps": groups.sums(each, np.ones(len(found), np.int64)),
            "idle_ns": idle,
            "share_pct": 100.0 * idle / np.maximum(whole, 1),
            "steady_idle_ns": groups.sums(each, np.where(found.one_time, 0, found.idle_ns)),
            "meaning": Texts.of(meanings[c] for c in cause),
        },
    )
    return table.take(np.lexsort((-idle, device)))


def _longest(trace: Trace, found: Gaps) -> Table:
    rows = np.argsort(-found.idle_ns, kind="stable")[:LONGEST]
    after = found.after[rows]
    tree = range_tree(trace)
    path = attributed_operations(trace).path(tree)[after]
    names = list(CAUSES)
    return Table(
        GAPS.columns,
        {
            "device_id": trace.devices["device_id"][found.device[rows]],
            "start_ns": found.start_ns[rows],
            "duration_ns": found.idle_ns[rows],
            "cause": Texts.of(names[c] for c in found.cause[rows].tolist()),
            "range_path": Texts.of(tree.path_text[p] if p >= 0 else UNATTRIBUTED for p in path),
            "next_operation": Texts.of(_label(trace, row) for row in after.tolist()),
        },
    )


def _label(trace: Trace, operation: int) -> str:
    done = operations(trace)
    kind, row = int(done.kind[operation]), int(done.row[operation])
    if kind == 0:
        return str(trace.kernels.texts("short_name")[row])
    if kind == 1:
        return f"copy {trace.copies.texts('direction')[row]}"
    return "set" if kind == 2 else "CUDA graph"


def _findings(found: Gaps, span_ns: int) -> tuple[Finding, ...]:
    """One finding a cause of steady idle; idle after a synchronization is one of sync-stalls."""
    findings = []
    for cause, action in ACTIONS.items():
        mine = (found.cause == cause) & ~found.one_time
        idle_ns = int(found.idle_ns[mine].sum())
        severity = severity_of(idle_ns, span_ns)
        if severity is None:
            continue
        findings.append(
            Finding(
                severity,
                f"The GPU was idle for {units.duration(idle_ns)} in "
                f"{units.counted(int(mine.sum()), 'gap')} of cause {list(CAUSES)[cause]}: "
                f"{list(CAUSES.values())[cause]}",
                action,
                idle_ns,
            )
        )
    return tuple(findings)


def _one_time(trace: Trace, found: Gaps) -> tuple[Finding, ...]:
    idle_ns = int(found.idle_ns[found.one_time].sum())
    if severity_of(idle_ns, steady_span_ns(trace)) is None:
        return ()
    message = (
        f"The GPU was idle for {units.duration(idle_ns)} in set-up and in first uses "
        "of kernels, while the program set itself up and code was loaded"
    )
    action = "Warm up before measuring; a longer run pays this once."
    return (Finding("info", message, action, idle_ns),)


ANALYSIS = Analysis(
    name="gpu-idle",
    title="GPU idle",
    question="How long did the GPU have nothing to do, and why?",
    needs=("kernels",),
    tables=(DEVICES, CAUSE_TABLE, GAPS),
    compute=compute,
    charts=(Chart("bars", "causes", "Idle time by cause", "cause", "idle_ns"),),
)
