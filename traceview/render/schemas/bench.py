"""The schemas of `traceview bench --json`: for an operation, and for a program's sweep."""

from __future__ import annotations

from traceview.bench.describe import TensorFacts
from traceview.bench.history import VersionDifference
from traceview.bench.machine import Machine
from traceview.bench.timing.growth import Fit
from traceview.bench.widths import Width
from traceview.render.base.json_schema import (
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Schema,
    document,
    fields_of,
    many,
    mapping,
    maybe,
    record,
)

_WHICH = {"size": WHOLE, "value": maybe(WHOLE), "dtype": TEXT, "version": TEXT}
_TIMING = {
    "clock": maybe(TEXT),
    "cache": maybe(TEXT),
    "trials": maybe(WHOLE),
    "calls_per_trial": maybe(WHOLE),
    **{
        name: maybe(NUMBER)
        for name in ("median_ns", "p10_ns", "p90_ns", "mad_ns", "host_ns", "floor_ns")
    },
    "outliers": maybe(WHOLE),
    "exposed_trials": maybe(WHOLE),
    "elsewhere_ns": maybe(NUMBER),
    "is_launch_bound": maybe(YES_NO),
    "samples_ns": many(NUMBER),
    "remarks": many(TEXT),
}


def operation() -> Schema:
    """All versions of an operation at all sizes."""
    return document(
        ("description", "profile", "comparison"),
        operation=TEXT,
        title=TEXT,
        size_means=TEXT,
        over=TEXT,
        machine=fields_of(Machine),
        peaks=record(
            memory_bytes_per_s=maybe(NUMBER),
            flop_per_s=mapping(maybe(NUMBER)),
            source=maybe(TEXT),
        ),
        rows=many(_row()),
        fits=many(_fit(dtype=TEXT, version=TEXT)),
        notes=many(TEXT),
        description=_description(),
        profile=_profile(),
        comparison=_comparison(),
    )


def program() -> Schema:
    """A program run at several values of one argument."""
    return document(
        program=TEXT,
        arguments=many(TEXT),
        machine=fields_of(Machine),
        over=TEXT,
        points=many(record(value=NUMBER, **_TIMING, last_line=maybe(TEXT))),
        fit=_fit(),
    )


def _row() -> Schema:
    return record(
        **_WHICH,
        note=maybe(TEXT),
        status=TEXT,
        why=maybe(TEXT),
        bytes=maybe(WHOLE),
        flop=maybe(WHOLE),
        **_TIMING,
        bytes_per_s=maybe(NUMBER),
        flop_per_s=maybe(NUMBER),
        peak_pct=maybe(NUMBER),
        bound=maybe(TEXT),
        times_as_fast_as_first=maybe(NUMBER),
        relative_error=maybe(NUMBER),
        tolerance=maybe(NUMBER),
        checked_size=maybe(WHOLE),
        load_width=maybe(fields_of(Width)),
    )


def _fit(**more: Schema) -> Schema:
    fit = fields_of(Fit)
    fit["properties"] |= {"sentence": TEXT, **more}
    fit["required"] += ["sentence", *more]
    return fit


def _description() -> Schema:
    return record(
        inputs=many(fields_of(TensorFacts)),
        outputs=many(fields_of(TensorFacts)),
        arguments=many(TEXT),
        median_ns=NUMBER,
        peak_memory_bytes=maybe(WHOLE),
    )


def _profile() -> Schema:
    operator = record(
        operator=TEXT, calls=WHOLE, cpu_ns=WHOLE, gpu_ns=maybe(WHOLE), share_pct=NUMBER
    )
    kernel = record(
        operator=TEXT,
        kernel=TEXT,
        calls=WHOLE,
        total_ns=WHOLE,
        mean_ns=NUMBER,
        share_pct=NUMBER,
    )
    return record(
        **_WHICH, calls=WHOLE, on_gpu=YES_NO, operators=many(operator), kernels=many(kernel)
    )


def _comparison() -> Schema:
    return record(
        operation=TEXT,
        runs_before=WHOLE,
        runs_after=WHOLE,
        level=NUMBER,
        notes=many(TEXT),
        rows=many(fields_of(VersionDifference)),
    )
