"""JSON Schemas of all JSON outputs, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from traceview.analyses import ALL
from traceview.analyses.base import Analysis, Failed, Skipped
from traceview.analyses.verdict import SCOREBOARD, RunTime, Verdict
from traceview.errors import InputError, suggestion
from traceview.recorders import MachineCheck
from traceview.render.base.json_schema import (
    DRAFT,
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
from traceview.render.base.json_shape import document_schema
from traceview.render.base.json_text import SCHEMA_VERSION
from traceview.render.comparison.json import COMPARISON
from traceview.render.gate.json import GATE
from traceview.render.report.json import TRACE
from traceview.render.schemas import bench, kernels, ranks
from traceview.render.schemas.findings import FORECAST, finding


def schema(name: str) -> Schema:
    """The schema of the JSON output `name`. Raises InputError if there is none."""
    if name not in SCHEMAS:
        raise InputError(f"no JSON output is named {name!r}", suggestion(name, [*SCHEMAS]))
    title = f"traceview {name}, schema_version {SCHEMA_VERSION}"
    return {"$schema": DRAFT, "title": title, **SCHEMAS[name]()}


def _report() -> Schema:
    return document(
        trace=TRACE.schema(),
        analyses={"type": "object", "properties": {each.name: _analysis(each) for each in ALL}},
        findings=many(finding(analysis=TEXT, forecast=FORECAST)),
        verdict=maybe(fields_of(Verdict)),
        scoreboard=maybe(row(SCOREBOARD)),
        run_time=maybe(fields_of(RunTime)),
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
    "compare": lambda: document_schema(COMPARISON),
    "gate": lambda: document_schema(GATE),
    "ptx": kernels.kernels,
    "ptx-diff": kernels.diff,
    "bench": bench.operation,
    "bench-program": bench.program,
    "doctor": _doctor,
}
"""Builders of the schemas, by the name of the output."""
