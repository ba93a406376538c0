"""The schema of the JSON output of a gate."""

from __future__ import annotations

from traceview.comparison.gate.rules import Decision, Outcome
from traceview.render.schemas.shapes import (
    NUMBER,
    TEXT,
    Schema,
    described,
    document,
    fields_of,
    many,
    mapping,
    of,
    record,
)


def gate() -> Schema:
    """The whole document."""
    decision = fields_of(Decision)["properties"]
    run = record(name=TEXT, digest=TEXT, figures=mapping(NUMBER))
    return document(
        outcome=described(of(Outcome), "the worst of all rules"),
        summary=TEXT,
        headline=described(TEXT, "faster or slower by how much, and how sure that is"),
        rules=many(record(**decision, sentence=TEXT)),
        baseline=many(run),
        candidate=many(run),
    )
