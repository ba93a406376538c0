"""JSON Schemas of all JSON outputs, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from traceview.analyses import ALL
from traceview.analyses.base import Analysis, Failed, Skipped
from traceview.analyses.verdict import SCOREBOARD, RunTime, Verdict
from traceview.errors import InputError, suggestion
from traceview.recorders import MachineCheck
from traceview.render.base.json_text import SCHEMA_VERSION
from traceview.render.schemas import bench, comparison, gate, kernels, ranks
from traceview.render.schemas.findings import FORECAST, finding
from traceview.render.schemas.shapes import (
    DRAFT,
    NUMBER,
    SCALAR,
    TEXT,
    WHOLE,
    YES_NO,
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
from traceview.report import RecordedGpu, RecordedProcess


def schema(name: str) -> Schema:
    """The schema of the JSON output `name`. Raises InputError if there is none."""
    if name not in SCHEMAS:
        raise InputError(f"no JSON output is named {name!r}", suggestion(name, [*SCHEMAS]))
    title = f"traceview {name}, schema_version {SCHEMA_VERSION}"
    return {"$schema": DRAFT, "title": title, **SCHEMAS[name]()}


def _report() -> Schema:
    return document(
        trace=_trace(),
        analyses={"type": "object", "properties": {each.name: _analysis(each) for each in ALL}},
        findings=many(finding(analysis=TEXT, forecast=FORECAST)),
        verdict=maybe(fields_of(Verdict)),
        scoreboard=maybe(row(SCOREBOARD)),
        run_time=maybe(fields_of(RunTime)),
    )


def _trace() -> Schema:
    return record(
        path=TEXT,
        recorder=TEXT,
        recorder_version=maybe(TEXT),
        export_schema_version=maybe(TEXT),
        duration_ns=WHOLE,
        gpus=many(fields_of(RecordedGpu)),
        processes=many(fields_of(RecordedProcess)),
        row_counts=mapping(WHOLE),
        run=mapping(TEXT),
        selection=record(ranges=many(TEXT), exclude_ranges=many(TEXT)),
        strict=YES_NO,
        peaks=mapping(NUMBER),
        warnings=many(TEXT),
    )


def _analysis(analysis: Analysis) -> Schema:
    left_out = {**record(rows=WHOLE, kept=TEXT), "additionalProperties": of(float)}
    answered = record(
        ("left_out",),
        status={"const": "ok"},
        title=TEXT,
        question={"const": analysis.question},
        tables=record(**{spec.name: many(row(spec.columns)) for spec in analysis.tables}),
        left_out=mapping(left_out),
        summary=mapping(SCALAR),
        notes=many(TEXT),
    )
    skipped = record(status={"enum": [Skipped.status, Failed.status]}, reason=TEXT, remedy=TEXT)
    return {"description": analysis.question, "oneOf": [answered, skipped]}


def _doctor() -> Schema:
    return document(checks=many(fields_of(MachineCheck)))


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "report": _report,
    "ranks": ranks.job,
    "compare": comparison.comparison,
    "gate": gate.gate,
    "ptx": kernels.kernels,
    "ptx-diff": kernels.diff,
    "bench": bench.operation,
    "bench-program": bench.program,
    "doctor": _doctor,
}
"""Builders of the schemas, by the name of the output."""
