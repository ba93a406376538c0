"""The outcome of a check of `trace-health`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from traceview.findings import filled
from traceview.records import record
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
