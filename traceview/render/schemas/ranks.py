"""The schema of the answer for a job of many ranks."""

from __future__ import annotations

from traceview.ranks.job import FailedRank, JobVerdict
from traceview.ranks.tables import TABLES
from traceview.render.base.json_schema import (
    SCALAR,
    TEXT,
    WHOLE,
    Schema,
    document,
    fields_of,
    many,
    mapping,
    of,
    record,
    row,
)
from traceview.render.ranks.json import CLOCKS, RANK
from traceview.render.schemas.findings import FORECAST, finding


def job() -> Schema:
    """A job: its tables and findings, and a summary of each rank."""
    return document(job=_job(), ranks=many(RANK.schema()), failed=many(fields_of(FailedRank)))


def _job() -> Schema:
    left_out = {**record(rows=WHOLE, kept=TEXT), "additionalProperties": of(float)}
    return record(
        ("left_out",),
        world_size=WHOLE,
        missing_ranks=many(WHOLE),
        verdict=fields_of(JobVerdict),
        findings=many(finding(analysis=TEXT, forecast=FORECAST)),
        # All tables, unless --only names some.
        tables=record(
            [spec.name for spec in TABLES],
            **{spec.name: many(row(spec.columns)) for spec in TABLES},
        ),
        left_out=mapping(left_out),
        summary=mapping(SCALAR),
        notes=many(TEXT),
        warnings=many(TEXT),
        clocks=CLOCKS.schema(),
    )
