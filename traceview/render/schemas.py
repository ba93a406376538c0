"""JSON Schemas of all JSON outputs, by name."""

from __future__ import annotations

from collections.abc import Mapping

from traceview.base.errors import InputError, suggestion
from traceview.base.records import record
from traceview.render.base import json_text
from traceview.render.bench_json import BENCH, PROGRAM
from traceview.render.comparison.json import COMPARISON
from traceview.render.gate import GATE
from traceview.render.history import HISTORY
from traceview.render.kernels.configurations import CONFIGURATIONS
from traceview.render.kernels.json import DIFF, KERNELS
from traceview.render.kernels.upgrade import UPGRADE
from traceview.render.ranks.json import JOB
from traceview.render.report.json import REPORT
from traceview.render.what_if.json import WHAT_IF
from traceview.traces.recorders import MachineCheck
from traceview.trials.tryout.ledger import Row


@record
class _Doctor:
    checks: list[MachineCheck]


@record
class _Tried:
    tried: list[Row]


SCHEMAS: Mapping[str, json_text.JsonShape] = {
    "report": REPORT,
    "ranks": JOB,
    "compare": COMPARISON,
    "gate": GATE,
    "history": HISTORY,
    "ptx": KERNELS,
    "ptx-diff": DIFF,
    "ptx-triton": UPGRADE,
    "ptx-configs": CONFIGURATIONS,
    "bench": BENCH,
    "bench-program": PROGRAM,
    "what-if": WHAT_IF,
    "doctor": json_text.JsonShape(_Doctor, "checks"),
    "try": json_text.JsonShape(_Tried, "tried"),
}
"""The shape of each output."""


def schema(name: str) -> json_text.Schema:
    """The schema of the JSON output `name`. Raises InputError if there is none."""
    if name not in SCHEMAS:
        raise InputError(f"no JSON output is named {name!r}", suggestion(name, [*SCHEMAS]))
    title = f"traceview {name}, schema_version {json_text.SCHEMA_VERSION}"
    return {"$schema": json_text.DRAFT, "title": title, **json_text.document_schema(SCHEMAS[name])}
