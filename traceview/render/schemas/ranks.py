"""The schema of the answer for a job of many ranks."""

from __future__ import annotations

from traceview.ranks.figures import RankFinding, RankName
from traceview.ranks.job import FailedRank, JobVerdict
from traceview.ranks.tables import TABLES
from traceview.render.schemas.findings import FORECAST, finding
from traceview.render.schemas.shapes import (
    NUMBER,
    SCALAR,
    TEXT,
    WHOLE,
    Schema,
    document,
    fields_of,
    many,
    mapping,
    maybe,
    of,
    record,
    row,
)


def job() -> Schema:
    """A job: its tables and findings, and a summary of each rank."""
    return document(job=_job(), ranks=many(_rank()), failed=many(fields_of(FailedRank)))


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
        clocks=_clocks(),
    )


def _clocks() -> Schema:
    one = record(
        rank=WHOLE,
        offset_ns=WHOLE,
        drift=NUMBER,
        origin_ns=WHOLE,
        error_ns=maybe(WHOLE),
        component=WHOLE,
    )
    return record(basis=TEXT, reference_rank=maybe(WHOLE), ranks=many(one))


def _rank() -> Schema:
    name = fields_of(RankName)["properties"]
    return record(
        **name,
        path=TEXT,
        recorder=TEXT,
        verdict=TEXT,
        limit=TEXT,
        step_median_ns=maybe(WHOLE),
        busy_pct=of(float),
        findings=many(fields_of(RankFinding)),
        warnings=many(TEXT),
    )
