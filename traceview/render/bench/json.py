"""A bench report as JSON: the schema that scripts rely on, version 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from traceview.bench.comparison import BenchReport, VersionResult
from traceview.bench.describe import Description
from traceview.bench.history import BenchDifference
from traceview.bench.profiling import Profile
from traceview.bench.program import ProgramSweep
from traceview.bench.timing.growth import Fit, one_of
from traceview.bench.timing.measurement import Timing
from traceview.render.base.json_text import SCHEMA_VERSION, clean
from traceview.render.bench.profile_text import kernel_rows, operator_rows


def render_bench_json(
    report: BenchReport,
    version: str,
    description: Description | None = None,
    profiled: tuple[VersionResult, Profile] | None = None,
    difference: BenchDifference | None = None,
) -> str:
    """The report as one JSON document in ASCII, with the profile and comparison if given."""
    document = as_document(report, version, description)
    if profiled:
        document["profile"] = clean(_profile(*profiled))
    if difference:
        document["comparison"] = clean(asdict(difference))
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def render_program_json(program: ProgramSweep, version: str) -> str:
    """The sweep of a program as one JSON document in ASCII."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "program": program.path,
        "arguments": list(program.arguments),
        "machine": asdict(program.machine),
        "over": program.sweep.over,
        "points": [
            {"value": value, **_timing(timing), "last_line": line}
            for (value, timing), line in zip(program.sweep.points, program.last_lines, strict=True)
        ],
        "fit": _fit(program.sweep.fit, one_of(program.sweep.over), program.sweep.over),
    }
    return json.dumps(clean(document), indent=1, allow_nan=False) + "\n"


def as_document(
    report: BenchReport, version: str, description: Description | None = None
) -> dict[str, Any]:
    """The report as a document for `json.dumps`. `version` is traceview's own."""
    operation = report.operation
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "operation": operation.name,
        "title": operation.title,
        "size_means": operation.size_means,
        "over": report.over,
        "machine": asdict(report.machine),
        "peaks": {
            "memory_bytes_per_s": report.peaks.memory_bytes_per_s,
            "flop_per_s": dict(report.peaks.flop_per_s),
            "source": report.peaks.source,
        },
        "rows": [_row(report, row) for row in report.rows],
        "fits": [
            {"dtype": dtype, "version": name, **_fit(fit, report.unit, report.over)}
            for (dtype, name), fit in report.fits.items()
        ],
        "notes": list(report.notes),
    }
    if description:
        document["description"] = _description(description)
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def _row(report: BenchReport, row: VersionResult) -> dict[str, Any]:
    return {
        "size": row.size,
        "value": row.value,
        "dtype": row.dtype,
        "version": row.version,
        "note": report.operation.version(row.version).note,
        "status": row.status,
        "why": row.why,
        "bytes": row.bytes_moved,
        "flop": row.flop,
        **_timing(row.timing),
        "bytes_per_s": row.bytes_per_s,
        "flop_per_s": row.flop_per_s,
        "peak_pct": row.peak_pct,
        "bound": row.bound,
        "times_as_fast_as_first": report.speedup(row),
        "relative_error": row.error,
        "tolerance": row.tolerance,
        "checked_size": row.checked_size,
        "load_width": asdict(row.width) if row.width else None,
    }


_FIGURES = (
    *("clock", "cache", "trials", "calls_per_trial"),
    *("median_ns", "p10_ns", "p90_ns", "mad_ns", "outliers"),
    *("host_ns", "floor_ns", "exposed_trials", "elsewhere_ns", "is_launch_bound"),
)


def _timing(timing: Timing | None) -> dict[str, Any]:
    """All keys of a timing; null values if it was not timed."""
    figures = {name: getattr(timing, name) if timing else None for name in _FIGURES}
    samples = list(timing.samples_ns) if timing else []
    return {**figures, "samples_ns": samples, "remarks": list(timing.remarks) if timing else []}


def _fit(fit: Fit, unit: str, over: str) -> dict[str, Any]:
    return {**asdict(fit), "sentence": fit.sentence(unit, over)}


def _profile(row: VersionResult, profile: Profile) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in ("size", "value", "dtype", "version")},
        "calls": profile.calls,
        "on_gpu": profile.on_gpu,
        "operators": operator_rows(profile),
        "kernels": kernel_rows(profile),
    }


def _description(description: Description) -> dict[str, Any]:
    return {
        "inputs": [asdict(each) for each in description.inputs],
        "outputs": [asdict(each) for each in description.outputs],
        "arguments": list(description.arguments),
        "median_ns": description.timing.median_ns,
        "peak_memory_bytes": description.peak_memory_bytes,
    }
