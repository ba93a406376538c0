"""When the GPU had nothing to do, and why.

Busy is the union of kernels, copies, sets and whole graphs of all processes on a device.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.analyses.gpu_idle.evidence import Evidence
from traceview.analyses.gpu_idle.findings import idle_findings
from traceview.analyses.warm_up_wording import warm_up_notes
from traceview.facts.idle.gaps import CAUSES, Gaps, device_work, gaps
from traceview.facts.idle.late_launches import late_places
from traceview.facts.operations.display_names import label
from traceview.facts.operations.hosts import HOST, device_hosts
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.ranges import UNATTRIBUTED, attributed_operations, range_tree
from traceview.facts.ranges.selection import selected_operations
from traceview.tables import NULL, Column, Table, Texts
from traceview.trace import Trace

DEVICES = TableSpec(
    "devices",
    "one row a GPU that did work",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column(
            "span_ns",
            "int64",
            "first start to last end of device work; of selected work, busy and idle together",
        ),
        Column("busy_ns", "int64", "union of kernels, copies, sets and graphs"),
        Column("idle_ns", "int64", "span less busy"),
        Column("busy_pct", "float64", "busy of span"),
        Column(
            "one_time_idle_ns",
            "int64",
            "idle in set-up, first uses of kernels and the first allocation of pinned memory",
        ),
        Column(
            "steady_busy_pct",
            "float64",
            "busy of span, both after set-up and without first uses; absent where that is all",
            nullable=True,
        ),
        HOST,
    ),
    brief=(
        "device_id",
        "host_id",
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
        Column("meaning", "text", "what the cause means", prose=True),
        HOST,
    ),
    brief=(
        "device_id",
        "host_id",
        "cause",
        "gaps",
        "idle_ns",
        "share_pct",
        "steady_idle_ns",
        "meaning",
    ),
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
        Column("call", "text", "the CUDA call that the cause rests on", nullable=True),
        Column("evidence", "text", "what in the recording proves the cause", prose=True),
        HOST,
    ),
    brief=(
        "duration_ns",
        "cause",
        "range_path",
        "evidence",
        "next_operation",
        "call",
        "start_ns",
        "device_id",
        "host_id",
    ),
)
LATE = TableSpec(
    "late",
    "launch-late idle by where the CPU was meanwhile, most steady idle first",
    (
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("range_pattern", "text", "range the launching thread was in, numbers as #"),
        Column(
            "where",
            "text",
            "CUDA call it was in, or outside CUDA: Python or other work",
            prose=True,
        ),
        Column("gaps", "int64", "idle gaps with some of it"),
        Column("idle_ns", "int64", "GPU idle time that passed while it was there"),
        Column("share_pct", "float64", "of the GPU's launch-late idle time"),
        Column("steady_idle_ns", "int64", "of it, after set-up"),
    ),
    brief=("steady_idle_ns", "idle_ns", "share_pct", "range_pattern", "where", "gaps", "device_id"),
    adds=("idle_ns", "steady_idle_ns"),
)
LONGEST = 100


def compute(trace: Trace) -> Result:
    found = gaps(trace)
    return Result(
        {
            "devices": _devices(trace, found),
            "causes": _causes(trace, found),
            "late": late_places(trace).table(LATE.columns),
            "gaps": _longest(trace, found),
        },
        idle_findings(trace),
        notes=warm_up_notes(trace),
    )


def _devices(trace: Trace, found: Gaps) -> Table:
    done = operations(trace)
    chosen = selected_operations(trace)
    hosts = device_hosts(trace)
    rows = []
    for device in groups.different(done.device[chosen]).tolist():
        work_ns, steady_ns = device_work(trace)[device]
        idle = found.idle_ns[found.device == device]
        here = found.device == device
        once = int(found.idle_ns[here & found.one_time].sum())
        span_ns = work_ns + int(idle.sum())
        steady_span = steady_ns + int(found.idle_ns[here & ~found.one_time].sum())
        rows.append(
            {
                "device_id": int(trace.devices["device_id"][device]),
                "host_id": None if hosts[device] == NULL else int(hosts[device]),
                "span_ns": span_ns,
                "busy_ns": work_ns,
                "idle_ns": int(idle.sum()),
                "busy_pct": 100.0 * work_ns / max(span_ns, 1),
                "one_time_idle_ns": once,
                "steady_busy_pct": 100.0 * steady_ns / steady_span if steady_span else None,
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
            "host_id": device_hosts(trace)[device],
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
    shown = np.arange(len(rows))
    proof = Evidence(trace, rows)
    return Table(
        GAPS.columns,
        {
            "device_id": trace.devices["device_id"][found.device[rows]],
            "host_id": device_hosts(trace)[found.device[rows]],
            "start_ns": found.start_ns[rows],
            "duration_ns": found.idle_ns[rows],
            "cause": Texts.of(names[c] for c in found.cause[rows].tolist()),
            "range_path": Texts.of(tree.paths[p] if p >= 0 else UNATTRIBUTED for p in path),
            "next_operation": Texts.of(label(trace, row) for row in after.tolist()),
            "call": Texts.of(proof.call(number) for number in shown.tolist()),
            "evidence": Texts.of(proof.text(number) for number in shown.tolist()),
        },
    )


ANALYSIS = Analysis(
    name="gpu-idle",
    title="GPU idle",
    question="How long did the GPU have nothing to do, and why?",
    needs=("kernels",),
    tables=(DEVICES, CAUSE_TABLE, LATE, GAPS),
    compute=compute,
    charts=(Chart("bars", "causes", "Idle time by cause", "cause", "idle_ns"),),
)
