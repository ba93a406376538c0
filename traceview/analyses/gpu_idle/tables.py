"""The tables of `gpu-idle`, column by column."""

from __future__ import annotations

from traceview.analyses.base import TableSpec
from traceview.facts.operations.hosts import HOST
from traceview.tables import Column

DEVICES = TableSpec(
    "devices",
    "one row per GPU that did work",
    (
        Column("device_id", "int32", "GPU, as the recorder numbers it"),
        Column(
            "span_ns",
            "int64",
            "first start to last end of GPU work; busy plus idle time where ranges are selected",
        ),
        Column("busy_ns", "int64", "union of kernels, copies, memsets and whole graphs"),
        Column("idle_ns", "int64", "span minus busy"),
        Column("busy_pct", "float64", "busy share of the span"),
        Column(
            "one_time_idle_ns",
            "int64",
            "idle in warm-up, first uses of kernels and the first allocation of pinned memory",
        ),
        Column(
            "steady_busy_pct",
            "float64",
            "busy share after warm-up, without first uses; absent if nothing ran after warm-up",
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
    "one row per GPU and cause, over all gaps",
    (
        Column("device_id", "int32", "GPU, as the recorder numbers it"),
        Column("cause", "text", "why the work that ended the gap did not start earlier"),
        Column("gaps", "int64", "number of idle gaps"),
        Column("idle_ns", "int64", "idle time in them"),
        Column("share_pct", "float64", "share of the GPU's idle time"),
        Column("steady_idle_ns", "int64", "part of idle after warm-up"),
        Column("meaning", "text", "meaning of the cause", prose=True),
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
        Column("device_id", "int32", "GPU, as the recorder numbers it"),
        Column("start_ns", "int64", "time at which the GPU ran dry"),
        Column("duration_ns", "int64", "time until work started again"),
        Column("cause", "text", "why the work that ended the gap did not start earlier"),
        Column("range_path", "text", "range in which the next work was launched"),
        Column("next_operation", "text", "the work that ended the gap"),
        Column("call", "text", "the CUDA call that the cause rests on", nullable=True),
        Column("evidence", "text", "what in the recording shows the cause", prose=True),
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
    "launch-late idle time by what the CPU did meanwhile, most steady idle first",
    (
        Column("device_id", "int32", "GPU, as the recorder numbers it"),
        Column("range_pattern", "text", "range open on the launching thread, numbers as #"),
        Column(
            "where",
            "text",
            "CUDA call it was in; outside CUDA is Python or other CPU work",
            prose=True,
        ),
        Column("gaps", "int64", "idle gaps with some of this time"),
        Column("idle_ns", "int64", "GPU idle time meanwhile"),
        Column("share_pct", "float64", "share of the GPU's launch-late idle time"),
        Column("steady_idle_ns", "int64", "part of idle after warm-up"),
    ),
    brief=("steady_idle_ns", "idle_ns", "share_pct", "range_pattern", "where", "gaps", "device_id"),
    adds=("idle_ns", "steady_idle_ns"),
)
LINES = TableSpec(
    "lines",
    "idle time waiting for the CPU by line or native function of the program, most steady first",
    (
        Column("device_id", "int32", "GPU, as the recorder numbers it"),
        Column(
            "file", "text", "innermost file of the program, or executable; absent: library", True
        ),
        Column("line", "int32", "line that the launching thread was at, in Python", nullable=True),
        Column("function", "text", "function that contains the line", nullable=True),
        Column("inner", "text", "library function that it was in there", nullable=True),
        Column("activity", "text", "cpu, or what the thread did or waited for instead"),
        Column("source", "text", "text of the line, where recorded", nullable=True),
        Column("samples", "int64", "samples of the stack in idle gaps; 0 for recorded waits"),
        Column("idle_ns", "int64", "GPU idle time that these samples stand for, or of these waits"),
        Column("share_pct", "float64", "share of the GPU's idle time waiting for the CPU"),
        Column("steady_idle_ns", "int64", "part of idle after warm-up"),
    ),
    brief=(
        "steady_idle_ns",
        "file",
        "line",
        "function",
        "inner",
        "idle_ns",
        "share_pct",
        "activity",
        "samples",
        "source",
        "device_id",
    ),
    adds=("samples", "idle_ns", "steady_idle_ns"),
    rare=True,
)
