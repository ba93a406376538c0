"""The outcome of a check of `trace-health`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from traceview.analyses.base import TableSpec
from traceview.findings import filled
from traceview.records import record
from traceview.tables import Column
from traceview.units import Value

Status = Literal["blind", "warning", "note", "ok"]
STATUSES: tuple[Status, ...] = get_args(Status)


@record
class Check:
    """Outcome of one check: `template` over `values`, as in a finding.

    `lost_ns` is the time that the check finds lost, out of `span_ns`. `all_in_doubt` is
    True where nothing else in the report can be relied on.
    """

    check: str
    status: Status
    template: str
    remedy: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    lost_ns: int = 0
    span_ns: int = 0
    all_in_doubt: bool = False

    @property
    def detail(self) -> str:
        """The template with its values."""
        return filled(self.template, self.values)


# The tables of `trace-health`, column by column.

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
