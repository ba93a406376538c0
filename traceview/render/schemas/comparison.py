"""The schema of the JSON output of a comparison of runs."""

from __future__ import annotations

from traceview.comparison.comparison import Certainty, Change, EnvironmentDifference
from traceview.comparison.figures import KernelShape, PartKind
from traceview.render.schemas.shapes import (
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Schema,
    described,
    document,
    fields_of,
    many,
    mapping,
    maybe,
    of,
    record,
)


def comparison() -> Schema:
    """The whole document."""
    certainty = fields_of(Certainty)
    return document(
        headline=described(TEXT, "faster or slower by how much, and how sure that is"),
        step=record(
            has_steps=YES_NO,
            before_ns=described(NUMBER, "mean time per step; of the steady window without steps"),
            after_ns=NUMBER,
            difference_ns=described(NUMBER, "after less before; the sum over the parts"),
            difference_pct=maybe(NUMBER),
        ),
        certainty=record(**certainty["properties"], is_certain=YES_NO),
        changes=described(many(TEXT), "what explains the difference, causes first"),
        parts=described(many(_part()), "largest difference first"),
        counts=many(record(name=TEXT, before=NUMBER, after=NUMBER, varies=YES_NO)),
        environment=many(fields_of(EnvironmentDifference)),
        before=many(_run()),
        after=many(_run()),
        notes=many(TEXT),
    )


def _part() -> Schema:
    side = maybe(record(name=TEXT, place=TEXT, shape=maybe(fields_of(KernelShape))))
    return record(
        kind=of(PartKind),
        group=described(TEXT, "class of a kernel, direction of a copy, kind of a collective"),
        name=TEXT,
        place=described(TEXT, "range path or source line, empty where unknown"),
        change=of(Change),
        sentence=TEXT,
        before_ns=NUMBER,
        after_ns=NUMBER,
        difference_ns=NUMBER,
        share_pct=maybe(NUMBER),
        calls_before=NUMBER,
        calls_after=NUMBER,
        from_calls_ns=described(NUMBER, "what more or fewer calls account for"),
        from_time_per_call_ns=described(NUMBER, "what the time per call accounts for"),
        before=side,
        after=side,
    )


def _run() -> Schema:
    return record(
        name=TEXT,
        recorder=TEXT,
        devices=WHOLE,
        has_steps=YES_NO,
        steps=WHOLE,
        window_ns=WHOLE,
        environment=mapping(TEXT),
        figures=mapping(maybe(NUMBER)),
        warnings=many(TEXT),
    )
