"""A bench report as JSON: the schema that scripts rely on, version 1."""

from __future__ import annotations

from typing import Any

from traceview.bench.comparison import BenchReport, VersionResult
from traceview.bench.describe import Description
from traceview.bench.history import BenchDifference
from traceview.bench.profiling import Profile
from traceview.bench.program import ProgramSweep
from traceview.bench.timing.growth import Fit, one_of
from traceview.bench.timing.measurement import Timing
from traceview.records import record
from traceview.render.base.json_shape import (
    JsonKey,
    JsonShape,
    Keys,
    Schema,
    document,
    items_of,
    row,
)
from traceview.render.base.json_text import clean, written
from traceview.render.bench.profile import KERNELS, OPERATORS, kernel_table, operator_table


@record
class _Bench:
    """What one JSON document of an operation holds."""

    report: BenchReport
    description: Description | None = None
    profiled: tuple[VersionResult, Profile] | None = None
    comparison: BenchDifference | None = None


def _timing(path: str) -> str:
    """All keys of the timing at a path; null values if it was not timed."""
    names = (
        "clock cache trials calls_per_trial median_ns p10_ns p90_ns mad_ns outliers host_ns "
        "floor_ns exposed_trials elsewhere_ns is_launch_bound"
    )
    return " ".join(f"{name}={path}.{name}" for name in names.split())


def _samples(row: Any, _: Any) -> list[float]:
    return list(row.timing.samples_ns) if row.timing else []


def _remarks(row: Any, _: Any) -> list[str]:
    return list(row.timing.remarks) if row.timing else []


_LISTS = (JsonKey("samples_ns", list[float], _samples), JsonKey("remarks", list[str], _remarks))
_ROW = JsonShape(
    VersionResult,
    "size value dtype version",
    JsonKey("note", str | None, lambda row, of: of.report.operation.version(row.version).note),
    "status why bytes=bytes_moved flop",
    _timing("timing"),
    *_LISTS,
    "bytes_per_s flop_per_s peak_pct bound",
    JsonKey("times_as_fast_as_first", float, lambda row, of: of.report.speedup(row)),
    "relative_error=error tolerance checked_size load_width=width",
)


@record
class _Fitted:
    """The growth of the time of one version."""

    dtype: str
    version: str
    fit: Fit
    sentence: str


def _fits(of: _Bench, _: Any) -> list[_Fitted]:
    report = of.report
    return [
        _Fitted(dtype, version, fit, fit.sentence(report.unit, report.over))
        for (dtype, version), fit in report.fits.items()
    ]


def _rows(columns: Any) -> Any:
    def schema() -> Schema:
        return {"type": "array", "items": row(columns)}

    return schema


_FIT = Keys(JsonShape(Fit, "*"), lambda fitted, _: fitted.fit)
_PROFILE = JsonShape(
    tuple,
    Keys(JsonShape(VersionResult, "size value dtype version"), lambda pair, _: pair[0]),
    Keys(JsonShape(Profile, "calls on_gpu"), lambda pair, _: pair[1]),
    JsonKey("operators", _rows(OPERATORS.columns), lambda pair, _: operator_table(pair[1])),
    JsonKey("kernels", _rows(KERNELS.columns), lambda pair, _: kernel_table(pair[1])),
)
_DESCRIPTION = JsonShape(
    Description, "inputs outputs arguments median_ns=timing.median_ns peak_memory_bytes"
)
_PEAKS = "memory_bytes_per_s=report.peaks.memory_bytes_per_s flop_per_s=report.peaks.flop_per_s"
BENCH = JsonShape(
    _Bench,
    "operation=report.operation.name title=report.operation.title",
    "size_means=report.operation.size_means over=report.over machine=report.machine",
    JsonKey("peaks", JsonShape(_Bench, _PEAKS, "source=report.peaks.source"), lambda of, _: of),
    items_of("rows=report.rows", _ROW),
    JsonKey("fits", [JsonShape(_Fitted, "dtype version", _FIT, "sentence")], _fits),
    "notes=report.notes",
    JsonKey("description", _DESCRIPTION, lambda of, _: of.description, optional=True),
    JsonKey("profile", _PROFILE, lambda of, _: of.profiled, optional=True),
    JsonKey("comparison", BenchDifference, lambda of, _: of.comparison, optional=True),
    context=lambda of, _: of,
)


@record
class _Point:
    value: int
    timing: Timing
    last_line: str


def _points(program: ProgramSweep, _: Any) -> list[_Point]:
    lines = zip(program.sweep.points, program.last_lines, strict=True)
    return [_Point(*point, line) for point, line in lines]


def _sentence(fit: Fit, program: ProgramSweep) -> str:
    return fit.sentence(one_of(program.sweep.over), program.sweep.over)


_FIT_OF_PROGRAM = JsonShape(Fit, "*", JsonKey("sentence", str, _sentence))
PROGRAM = JsonShape(
    ProgramSweep,
    "program=path arguments machine over=sweep.over",
    JsonKey(
        "points", [JsonShape(_Point, "value", _timing("timing"), *_LISTS, "last_line")], _points
    ),
    JsonKey("fit", _FIT_OF_PROGRAM, lambda program, _: program.sweep.fit),
    context=lambda program, _: program,
)


def render_bench_json(
    report: BenchReport,
    version: str,
    description: Description | None = None,
    profiled: tuple[VersionResult, Profile] | None = None,
    difference: BenchDifference | None = None,
) -> str:
    """The report as one JSON document in ASCII, with the profile and comparison if given."""
    whole = _Bench(report, description, profiled, difference)
    return f"{written(document(BENCH, whole, version))}\n"


def render_program_json(program: ProgramSweep, version: str) -> str:
    """The sweep of a program as one JSON document in ASCII."""
    return f"{written(document(PROGRAM, program, version))}\n"


def as_document(report: BenchReport, version: str) -> dict[str, Any]:
    """The report as a document for `json.dumps`. `version` is traceview's own."""
    cleaned: dict[str, Any] = clean(document(BENCH, _Bench(report), version))
    return cleaned
