"""The tables of `trace-health`, column by column."""

from __future__ import annotations

from traceview.analyses.base import TableSpec
from traceview.tables import Column

CHECKS = TableSpec(
    "checks",
    "one row per check; `blind` and `warning` come first",
    (
        Column("check", "text", "what was checked"),
        Column("status", "text", "blind (some answer is impossible or wrong), warning, note or ok"),
        Column("detail", "text", "what was found", prose=True),
        Column("remedy", "text", "how to record it", nullable=True, prose=True),
    ),
    brief=("check", "status", "detail", "remedy"),
)
OVERHEADS = TableSpec(
    "overheads",
    "profiler overhead by purpose",
    (
        Column("name", "text", "purpose"),
        Column("kind", "text", "profiler, cupti or queue-full"),
        Column("calls", "int64", "times it occurred"),
        Column("total_ns", "int64", "total time"),
        Column("in_gpu_span_ns", "int64", "part of it between the first and the last GPU work"),
    ),
    brief=("name", "kind", "calls", "total_ns", "in_gpu_span_ns"),
)
DIAGNOSTICS = TableSpec(
    "diagnostics",
    "warnings and errors of the recorder",
    (
        Column("severity", "text", "warning or error"),
        Column("times", "int64", "times it was reported"),
        Column("text", "text", "the message", prose=True),
    ),
    brief=("severity", "times", "text"),
)
