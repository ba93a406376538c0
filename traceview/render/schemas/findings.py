"""The schema of a finding, of a trace or of a kernel."""

from __future__ import annotations

from traceview.findings import Forecast, Severity, Subject
from traceview.render.base.json_schema import (
    SCALAR,
    TEXT,
    WHOLE,
    Schema,
    fields_of,
    mapping,
    maybe,
    of,
    record,
)

EVIDENCE = record(
    analysis=maybe(TEXT),
    table=maybe(TEXT),
    row=mapping(SCALAR),
    start_ns=maybe(WHOLE),
    end_ns=maybe(WHOLE),
    basis=maybe(TEXT),
    values=mapping(SCALAR),
)


def finding(**more: Schema) -> Schema:
    """A finding, with the keys `more` that its document adds."""
    return record(
        severity=of(Severity),
        message=TEXT,
        action=TEXT,
        time_at_stake_ns=WHOLE,
        share_of_step_pct=of(float),
        subject=fields_of(Subject),
        evidence=EVIDENCE,
        **more,
    )


FORECAST = maybe(fields_of(Forecast, without=("share_of_step_pct",)))
