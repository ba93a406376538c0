"""Render a bench report for a terminal: one table of versions per size and data type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.comparison import BenchReport, VersionResult
from traceview.bench.describe import Description, TensorFacts
from traceview.bench.machine import Machine, Peaks
from traceview.bench.timing.measurement import Timing
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, grid, heading, note_block
from traceview.tables import Column, Table

_LEAST_TEXT = 18
_VERSIONS = TableSpec(
    "versions",
    "one row per version",
    (
        Column("version", "text", "name"),
        Column("time", "text", "median per call"),
        Column("p10_to_p90", "text", "10th to 90th percentile", nullable=True),
        Column("bytes_per_s", "float64", "minimum traffic ÷ time", nullable=True),
        Column("of_peak", "text", "percent of peak", nullable=True),
        Column("flop_per_s", "float64", "FLOP ÷ time", nullable=True),
        Column("error", "text", "relative to float64", nullable=True),
        Column("loads_bits", "int64", "bits per thread per load", nullable=True),
        Column("speed", "text", "relative to the first", nullable=True),
        Column("note", "text", "what distinguishes it", nullable=True, prose=True),
    ),
    ("version", "time", "bytes_per_s", "of_peak", "error", "loads_bits", "p10_to_p90", "speed"),
)
_TENSORS = TableSpec(
    "tensors",
    "one row per tensor",
    (
        Column("tensor", "text", "name"),
        Column("shape", "text", "elements per dimension"),
        Column(
            "strides",
            "text",
            ("elements between neighbours along each dimension along each dimension"),
        ),
        Column("dtype", "text", "data type"),
        Column("contiguous", "bool", "dense, in row-major order"),
        Column("bytes", "int64", "size of its elements"),
        Column("least", "float64", "smallest finite value", nullable=True),
        Column("greatest", "float64", "largest finite value", nullable=True),
        Column("nan", "int64", "NaN values"),
        Column("inf", "int64", "infinite values"),
    ),
    ("tensor", "shape", "strides", "dtype", "contiguous", "bytes", "least", "greatest"),
)


def render_bench(
    report: BenchReport,
    *,
    description: Description | None = None,
    width: int = 80,
    color: bool = False,
) -> str:
    """The report in lines of at most `width` cells; with `color`, ANSI styles."""
    groups = groupby(report.rows, key=lambda row: (row.size, row.dtype, row.value))
    tables = [_versions(report, list(rows), width) for _, rows in groups]
    described = [_described(description, width)] if description else []
    return drawn([_header(report), *described, *tables, *_fits(report)], width, color)


def _header(report: BenchReport) -> RenderableType:
    rows = grid("", "")
    for name, value in machine_facts(report.machine, report.peaks):
        rows.add_row(Text(name, "dim"), Text(visible(value)))
    title = heading(visible(report.operation.title), visible(report.operation.name))
    return Group(title, rows, *(note_block("Note: ", note, "dim") for note in report.notes))


def machine_facts(machine: Machine, peaks: Peaks) -> list[tuple[str, str]]:
    """The machine of a measurement, as pairs of label and text."""
    gpu = f"{machine.gpu}, {machine.sm_count} SMs" if machine.gpu else "none"
    versions = (
        ("driver", machine.driver_version),
        ("CUDA", machine.cuda_version if machine.gpu else None),
        ("torch", machine.torch_version),
        ("triton", machine.triton_version),
        ("Python", machine.python_version),
    )
    installed = " · ".join(f"{name} {version}" for name, version in versions if version)
    peak = units.quantity("bytes_per_s", peaks.memory_bytes_per_s)
    of_memory = [("peak", f"{peak} ({peaks.source})")] if peaks.memory_bytes_per_s else []
    return [("GPU", gpu), *of_memory, ("versions", installed)]


def _versions(report: BenchReport, rows: Sequence[VersionResult], width: int) -> RenderableType:
    first = rows[0]
    work = [units.size(first.bytes_moved), units.quantity("flop", first.flop)]
    plural = report.operation.size_means
    singular = plural if " " in plural else report.operation.unit
    size = units.counted(first.size, singular, plural)
    swept = [] if first.value is None else [f"{report.over} {units.count(first.value)}"]
    facts = (*swept, size, first.dtype, *work)
    timed = [row.timing for row in rows if row.timing]
    head = Text(" · ".join(visible(each) for each in facts), "bold")
    table = cells(fitting(_VERSIONS, _version_table(report, rows), width, _LEAST_TEXT))
    return Group(head, *_method(timed), *_cache_note(report, rows), table, *_remarks(rows))


def _version_table(report: BenchReport, rows: Sequence[VersionResult]) -> Table:
    values = [_version_cells(report, row) for row in rows]
    names = [column.name for column in _VERSIONS.columns]
    return Table(_VERSIONS.columns, {n: [each[n] for each in values] for n in names})


def _version_cells(report: BenchReport, row: VersionResult) -> dict[str, object]:
    timing, speedup = row.timing, report.speedup(row)
    peak = f"{units.percent(row.peak_pct)} {row.bound}" if row.peak_pct is not None else None
    return {
        "version": row.version,
        "time": units.duration(row.median_ns) if timing else _STATES.get(row.status, row.status),
        "p10_to_p90": _spread(timing) if timing else None,
        "bytes_per_s": row.bytes_per_s,
        "of_peak": peak,
        "flop_per_s": row.flop_per_s,
        "error": None if row.error is None else f"{row.error:.1e}",
        "loads_bits": row.width.bits if row.width else None,
        "speed": f"{units.quantity('', speedup)} ×" if speedup else None,
        "note": report.operation.version(row.version).note or None,
    }


_STATES = {"wrong": "WRONG", "failed": "FAILED", "unsupported": "n/a"}

_REASONS = {
    "right": "right, not timed: {}",
    "wrong": "WRONG, not timed: {}",
    "failed": "FAILED: {}",
    "skipped": "skipped: {}",
    "unsupported": "unsupported: {}",
}


def _spread(timing: Timing) -> str:
    return f"{units.duration(timing.p10_ns)} – {units.duration(timing.p90_ns)}"


def _method(timed: Sequence[Timing]) -> list[RenderableType]:
    if not timed:
        return []
    first = timed[0]
    trials = {timing.trials for timing in timed}
    count = str(min(trials)) if len(trials) == 1 else f"{min(trials)} to {max(trials)}"
    clock = {"cuda-events": "CUDA events", "wall": "wall clock", "perf-counter": "perf_counter"}
    cache = f", {first.cache} L2" if first.clock == "cuda-events" else ""
    return [Text(f"median of {count} trials, {clock[first.clock]}{cache}", "dim")]


def _cache_note(report: BenchReport, rows: Sequence[VersionResult]) -> list[RenderableType]:
    """A note if all traffic fits in L2, so that some of it may not reach memory."""
    cache, moved = report.machine.l2_cache_bytes, rows[0].bytes_moved
    if not cache or moved is None or moved > cache or all(row.bound != "memory" for row in rows):
        return []
    note = f"the data fits in the L2 cache ({units.size(cache)}), so % of peak may exceed 100"
    return [note_block("", note, "dim")]


def _remarks(rows: Sequence[VersionResult]) -> list[RenderableType]:
    """Each remark once, with the versions that it applies to."""
    versions: dict[str, list[str]] = {}
    for row in rows:
        for remark in _remarks_on(row):
            versions.setdefault(remark, []).append(row.version)
    counts = (
        ("calls per measurement: ", [(r, t.calls_per_trial) for r, t in _timed(rows)], 1),
        ("outliers: ", [(r, t.outliers) for r, t in _timed(rows)], 0),
    )
    return [
        *(note_block(f"{', '.join(names)}: ", remark) for remark, names in versions.items()),
        *(
            note_block(
                lead, ", ".join(f"{row.version} {n}" for row, n in each if n != usual), "dim"
            )
            for lead, each, usual in counts
            if any(n != usual for _, n in each)
        ),
    ]


def _timed(rows: Sequence[VersionResult]) -> list[tuple[VersionResult, Timing]]:
    return [(row, row.timing) for row in rows if row.timing]


def _remarks_on(row: VersionResult) -> list[str]:
    remarks = [_REASONS[row.status].format(row.why)] if row.why else []
    remarks += row.timing.cautions if row.timing else []
    if row.checked_size not in (None, row.size):
        remarks.append(f"checked at size {units.count(row.checked_size)} because memory is short")
    if row.width and row.width.bits is None and row.width.why:
        remarks.append(f"no load width: {row.width.why}")
    if row.width and row.width.bits and row.width.size not in (None, row.size):
        remarks.append(f"load width compiled for size {units.count(row.width.size)}")
    return remarks


def _fits(report: BenchReport) -> list[RenderableType]:
    if not report.fits:
        return []
    rows = grid("", "", "")
    for (dtype, name), fit in report.fits.items():
        sentence = visible(fit.sentence(report.unit, report.over))
        rows.add_row(Text(visible(name)), Text(dtype, "dim"), Text(sentence))
    return [Group(heading(f"Time over {visible(report.over)}"), rows)]


def _described(description: Description, width: int) -> RenderableType:
    tensors = [*description.inputs, *description.outputs]
    values = [_tensor_cells(each) for each in tensors]
    names = [column.name for column in _TENSORS.columns]
    table = Table(_TENSORS.columns, {n: [each[n] for each in values] for n in names})
    timing = f"reference {units.duration(description.timing.median_ns)}"
    peak = description.peak_memory_bytes
    memory = f" · {units.size(peak)} of GPU memory at peak, beyond the inputs" if peak else ""
    rows = cells(fitting(_TENSORS, table, width, _LEAST_TEXT))
    return Group(heading("Inputs and outputs"), Text(timing + memory), rows)


def _tensor_cells(tensor: TensorFacts) -> dict[str, object]:
    return {
        "tensor": tensor.name,
        "shape": " × ".join(map(str, tensor.shape)) or "scalar",
        "strides": ", ".join(map(str, tensor.strides)) or "–",
        "dtype": tensor.dtype,
        "contiguous": tensor.contiguous,
        "bytes": tensor.bytes,
        "least": tensor.least,
        "greatest": tensor.greatest,
        "nan": tensor.nan_count,
        "inf": tensor.inf_count,
    }
